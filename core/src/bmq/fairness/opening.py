"""Opening batches, which may decompress to a thousand times their size and hold many records: in threads, and few at a
time.

Owns how much memory and how many threads all who open batches in one role may use together, and whose batch is next: by
turns of those who ask, so that nobody waits behind all that another one has sent. The threads are its own: nothing else
of the process waits for a batch that is being opened, nor does the process itself when it ends.
"""

import asyncio
from collections.abc import Hashable
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from typing_extensions import Buffer

from bmq.errors import BatchTooLarge, MostlyEmpty
from bmq.fairness.own_threads import OwnThreads
from bmq.fairness.turns import Party, Places
from bmq.wire.batches import BatchHeader
from bmq.wire.limits import DECOMPRESSED_BYTES_MAX

ORDINARY_BYTES_MAX: Final = 4 << 20
"""What nearly every batch decompresses to at most (Kafka's largest batch is 1 MiB by default)."""
ORDINARY_COMPRESSED_BYTES_MAX: Final = 1_100_000
"""What nearly every compressed batch has (Kafka's largest batch is 1 MiB by default): some 0.2 s, however little it
holds (empty deflate blocks)."""
ORDINARY_RECORDS_MAX: Final = 25_000
"""What nearly every batch has at most: some ten ms of walking."""
ORDINARY_AT_ONCE: Final = 2
LARGE_AT_ONCE: Final = 1
"""One costs up to twice `DECOMPRESSED_BYTES_MAX`."""

T_co = TypeVar("T_co", covariant=True)


class Look(Protocol[T_co]):
    """What is looked for in an opened batch; blocking."""

    def __call__(self, batch: Buffer, header: BatchHeader, /, *, decompressed_bytes_max: int) -> T_co: ...


class Opener:
    """Shared by all that open batches in one role. A large batch never holds up an ordinary one."""

    def __init__(self) -> None:
        threads = OwnThreads(ORDINARY_AT_ONCE + LARGE_AT_ONCE, name="opening batches")
        self._ordinary = _Places(ORDINARY_AT_ONCE, threads)
        self._large = _Places(LARGE_AT_ONCE, threads)

    async def look(
        self, look: Look[T_co], batch: Buffer, header: BatchHeader, *, party: Hashable, sender: Hashable = None
    ) -> T_co:
        """What `look` finds. `party` asks: all that do have turns, and in its turns its senders have theirs. It has no
        second place where another one waits for its first.

        Raises what `look` raises: CorruptBatch, BatchTooLarge, MostlyEmpty, UnsupportedCompression.
        """
        who = party, sender
        compressed_bytes = memoryview(batch).nbytes if header.codec else 0
        if header.record_count <= ORDINARY_RECORDS_MAX and compressed_bytes <= ORDINARY_COMPRESSED_BYTES_MAX:
            try:
                return await self._ordinary.run(
                    who, partial(look, batch, header, decompressed_bytes_max=ORDINARY_BYTES_MAX)
                )
            except MostlyEmpty:
                raise
            except BatchTooLarge:
                pass  # for this place
        return await self._large.run(who, partial(look, batch, header, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX))


class _Places:
    """At most so many in threads at once; of those who wait each has its turn, however much it asks for."""

    def __init__(self, at_once: int, threads: OwnThreads) -> None:
        self._places = Places(at_once)
        self._threads = threads

    async def run(self, who: Party, work: "partial[T_co]") -> T_co:
        """The result of blocking work. Who gives up waiting asks for nothing any more; what has begun counts until it
        is over.
        """
        party, sender = who
        await self._places.enter(party=party, sender=sender)
        try:
            running = asyncio.get_running_loop().run_in_executor(self._threads, work)
        except RuntimeError:  # the system has no thread
            self._places.leave(party=party)
            raise
        running.add_done_callback(partial(self._over, party))
        try:
            return await asyncio.shield(running)
        finally:
            # its error has this frame, and so would live, with all that was opened, until the garbage is collected
            del running

    def _over(self, party: Hashable, running: "asyncio.Future[Any]") -> None:
        if not running.cancelled():
            running.exception()  # there may be nobody any more to be told
        self._places.leave(party=party)
