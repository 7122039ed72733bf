"""Opening batches, which may decompress to a thousand times their size and hold many records: in threads, and few at a time.

Owns how much memory and how many threads all who open batches in one role may use together.
"""

import asyncio
from typing import Final, Protocol, TypeVar

from typing_extensions import Buffer

from bmq.errors import BatchTooLarge
from bmq.wire.batches import BatchHeader
from bmq.wire.limits import DECOMPRESSED_BYTES_MAX

ORDINARY_BYTES_MAX: Final = 4 << 20
"""What nearly every batch decompresses to at most (Kafka's largest batch is 1 MiB by default)."""
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
        self._ordinary = asyncio.Semaphore(ORDINARY_AT_ONCE)
        self._large = asyncio.Semaphore(LARGE_AT_ONCE)

    async def look(self, look: Look[T_co], batch: Buffer, header: BatchHeader) -> T_co:
        """What `look` finds. Raises what it raises: CorruptBatch, BatchTooLarge, UnsupportedCompression."""
        try:
            async with self._ordinary:
                return await _in_thread(look, batch, header, decompressed_bytes_max=ORDINARY_BYTES_MAX)
        except BatchTooLarge:
            async with self._large:
                return await _in_thread(look, batch, header, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)


async def _in_thread(look: Look[T_co], batch: Buffer, header: BatchHeader, *, decompressed_bytes_max: int) -> T_co:
    return await asyncio.get_running_loop().run_in_executor(None, lambda: look(batch, header, decompressed_bytes_max=decompressed_bytes_max))
