"""The writer of a WAL stream: several creates in flight, completed in order, and the deletion of what is covered.

Owns the numbers of one broker incarnation's stream and what the writer may do with them: complete an object only when
all below it are durable, complete nothing after the first conflict, delete only what its newest object says was
durable, and nothing from that conflict on. How a stream ends is storage/stream_seal.py's, how it is read
storage/stream_read.py's.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from typing import Final

from typing_extensions import Buffer

from bmq.errors import BmqError, Conflict, Fenced, NotReady, ObjectMissing, StoreError, UnknownOutcome
from bmq.ports import ObjectStore, Rng
from bmq.storage.durable import (
    Backoff,
    LatencyWindow,
    TroubleLog,
    cancelled,
    create_once,
    settle,
    together,
    when_available,
)
from bmq.storage.numbered import wal_key
from bmq.storage.stream_read import WalObjectDamaged, WalObjectMissing, drop_stream, read_number, read_stream
from bmq.storage.stream_seal import OWNER_DELETES_AT_ONCE, Kept, kept_of, seal_stream
from bmq.storage.wal import Seal, WalHeader, WalRun, encode_seal, encode_wal
from bmq.values import Nonce, StreamId

__all__ = [
    "Kept",
    "StreamBroken",
    "StreamWriter",
    "WalObjectDamaged",
    "WalObjectMissing",
    "drop_stream",
    "kept_of",
    "read_number",
    "read_stream",
    "seal_stream",
]

IN_FLIGHT_MAX: Final = 8
PASSED_AT_ONCE: Final = 100
"""How many of those who wait for one check go on in one turn of the loop: clients can make tens of thousands wait, each
with work of its own."""


class StreamBroken(BmqError):
    """A task of the stream failed in a way that no rule covers: the broker starts again under a new epoch."""


class StreamWriter:
    """Writes one stream. Everything it does, it does on the loop that called it; its callbacks must not raise."""

    def __init__(
        self,
        store: ObjectStore,
        stream: StreamId,
        *,
        cluster_id: str,
        rng: Rng,
        on_durable: Callable[[int], None],
        on_fenced: Callable[[BmqError], None],
        in_flight_max: int = IN_FLIGHT_MAX,
        start: int = 0,
        latency: LatencyWindow | None = None,
        on_created: Callable[[int, float], None] | None = None,
    ) -> None:
        """`start` is the first number: 0, for an epoch has one writer.

        `on_durable(number)` is called in the numbers' order. `on_fenced(error)` is called once, and nothing after it:
        the stream is another's now, or broken. `on_created(size_bytes, seconds)` is called for each create that
        succeeded. `latency` switches hedging on.
        """
        self._store = store
        self._stream = stream
        self._cluster_id = cluster_id
        self._rng = rng
        self._on_durable = on_durable
        self._on_fenced = on_fenced
        self._on_created = on_created
        self._latency = latency
        self._in_flight_max = in_flight_max
        self._trouble = TroubleLog(f"write {stream.prefix}")
        self._failing: tuple[float, StoreError] | None = None
        """The newest error of a create, and the loop's time of the first one since an object was created; None: none
        has failed since."""
        self._next = start
        self._durable_below = start
        self._created: dict[int, int] = {}
        """Objects that are in the store but not yet completed: number to the `durable_below` in their header."""
        self._newest_created = start - 1
        self._deletable_below = start
        """The `durable_below` of the newest object that is known to be in the store."""
        self._checkpoint = start
        self._deleted_below = start
        self._ended: BmqError | None = None
        self._closing = False
        self._sealing = False
        self._creates: set[asyncio.Task[None]] = set()
        self._deleter: asyncio.Task[None] | None = None
        self._checker: asyncio.Task[None] | None = None
        self._checks: dict[asyncio.Future[None], int] = {}
        """Who waits for a fence check, in the order of asking, and which number was the next one then."""
        self._passed: deque[asyncio.Future[None]] = deque()
        """Checks that are to hear, in this turn of the loop or the next ones, that nobody had sealed the stream."""

    @property
    def has_room(self) -> bool:
        """Whether `submit` would take an object now."""
        return self._ended is None and not self._closing and self._next - self._durable_below < self._in_flight_max

    @property
    def durable_below(self) -> int:
        """All numbers below it are durable."""
        return self._durable_below

    @property
    def in_flight(self) -> int:
        """How many objects were submitted and are not completed."""
        return self._next - self._durable_below

    @property
    def failing(self) -> tuple[float, StoreError] | None:
        """How many seconds no object could be created, though it was tried, and the newest error; None where the last
        try did not fail.
        """
        if self._failing is None:
            return None
        since_s, error = self._failing
        return asyncio.get_running_loop().time() - since_s, error

    def submit(self, runs: Sequence[WalRun]) -> int:
        """Sends the runs as the next object and returns its number. Their buffers are dropped once it is durable.

        Raises Fenced, StreamBroken, and NotReady without room or after the writer was told to stop.
        """
        self._check_alive()
        if not self.has_room:
            raise NotReady(f"{self.in_flight} objects of {self._stream.prefix} are in flight")
        number = self._next
        nonce = self._rng.nonce()
        header = WalHeader(
            cluster_id=self._cluster_id,
            node_id=self._stream.node_id,
            broker_epoch=self._stream.broker_epoch,
            number=number,
            nonce=nonce,
            durable_below=self._durable_below,
        )
        parts = encode_wal(header, runs)
        self._next += 1
        task = asyncio.get_running_loop().create_task(
            self._create(header, parts), name=f"create {wal_key(self._stream, number)}"
        )
        self._creates.add(task)
        task.add_done_callback(self._reap)
        return number

    def checkpoint(self, number: int) -> None:
        """Nobody needs the objects below `number` any more: they are deleted in the background, as far as the rules
        allow.
        """
        assert number <= self._durable_below, (
            f"{self._stream.prefix}: nobody needs what is below {number}, and only what is below {self._durable_below} "
            "is durable"
        )
        self._checkpoint = max(self._checkpoint, number)
        self._collect()

    async def verify_not_sealed(self) -> None:
        """Returns if nobody had sealed the stream when this was called. Raises Fenced, StreamBroken, NotReady. Waits
        out a store that is down.

        Where creates come and go, one that was sent after the call and completed proves it; otherwise each number is
        looked up where a seal could stand, once for all who wait: the next one, and those of creates that fail, as over
        a full disk, whose objects may all be read.
        """
        self._check_alive()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._checks[future] = self._next
        self._check_if_due()
        try:
            await future
        finally:
            self._checks.pop(future, None)

    async def seal_own(self) -> int:
        """The clean stop: takes nothing more, waits until everything is durable, seals the stream and returns the
        seal's number.

        Raises Fenced where another was first.
        """
        self._check_alive()
        self._closing = True
        while self._creates:
            await asyncio.wait(self._creates)
        if self._ended is not None:
            raise self._ended.with_traceback(None)
        self._sealing = True
        number, nonce = self._next, self._rng.nonce()
        seal = Seal(
            cluster_id=self._cluster_id,
            node_id=self._stream.node_id,
            broker_epoch=self._stream.broker_epoch,
            number=number,
            nonce=nonce,
        )
        try:
            await self._make(number, encode_seal(seal), nonce=nonce)
        except Conflict:
            self._end(self._fenced(number))
            raise self._fenced(number) from None
        self._silence(Fenced(f"{self._stream.prefix} was sealed by its owner at {number}"))
        return number

    async def close(self) -> None:
        """Ends every task. What is in flight may or may not come to be; it is not completed."""
        self._closing = True
        background = [task for task in (self._deleter, self._checker) if task is not None]
        self._silence(NotReady(f"the writer of {self._stream.prefix} is closed"))
        await cancelled([*self._creates, *background])

    async def _create(self, header: WalHeader, parts: Sequence[Buffer]) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        size_bytes = sum(memoryview(part).nbytes for part in parts)
        try:
            await self._make(header.number, parts, nonce=header.nonce)
        except Conflict:
            self._end(self._fenced(header.number))
            return
        if self._ended is not None:
            return
        if self._on_created is not None:
            self._on_created(size_bytes, loop.time() - began_s)
        self._failing = None
        assert self._durable_below <= header.number < self._next and header.number not in self._created, (
            f"{self._stream.prefix}: object {header.number} was created, all below {self._durable_below} are durable "
            f"and {self._next} is the next one"
        )
        self._created[header.number] = header.durable_below
        if header.number > self._newest_created:
            assert self._deletable_below <= header.durable_below <= header.number, (
                f"{self._stream.prefix}: object {header.number} says that all below {header.durable_below} are "
                f"durable, an older one said {self._deletable_below}"
            )
            self._newest_created = header.number
            self._deletable_below = header.durable_below
        self._complete()

    async def _make(self, number: int, parts: Sequence[Buffer], *, nonce: Nonce) -> None:
        """Creates the object, however long the store needs. Raises Conflict alone.

        The stream can neither skip the number nor put anything else there, so an unknown outcome is never final.
        """
        backoff = Backoff(self._rng)
        key = wal_key(self._stream, number)
        while True:
            try:
                return await create_once(
                    self._store,
                    key,
                    parts,
                    nonce=nonce,
                    rng=self._rng,
                    latency=self._latency,
                    trouble=self._not_created,
                )
            except UnknownOutcome as error:
                self._not_created(error)
            await backoff.wait()

    def _not_created(self, error: StoreError) -> None:
        since_s = asyncio.get_running_loop().time() if self._failing is None else self._failing[0]
        self._failing = since_s, error
        self._trouble(error)
        self._check_if_due()

    def _complete(self) -> None:
        while self._ended is None and self._durable_below in self._created:
            number = self._durable_below
            del self._created[number]
            self._durable_below = number + 1
            self._on_durable(number)
        self._pass(
            [future for future, _ in takewhile(lambda check: check[1] < self._durable_below, self._checks.items())]
        )
        self._check_if_due()
        self._collect()

    def _collect(self) -> None:
        running = self._deleter is not None and not self._deleter.done()
        if self._ended is None and not self._closing and not running and self._deleted_below < self._delete_limit():
            self._deleter = asyncio.get_running_loop().create_task(
                self._delete_covered(), name=f"delete of {self._stream.prefix}"
            )
            self._deleter.add_done_callback(self._reap)

    def _delete_limit(self) -> int:
        return min(self._checkpoint, self._deletable_below)

    async def _delete_covered(self) -> None:
        while self._deleted_below < self._delete_limit():
            assert self._delete_limit() <= self._durable_below, (
                f"{self._stream.prefix}: {self._delete_limit()} is above what is durable, {self._durable_below}"
            )
            numbers = range(self._deleted_below, min(self._delete_limit(), self._deleted_below + OWNER_DELETES_AT_ONCE))
            await together(self._delete(number) for number in numbers)
            self._deleted_below = numbers.stop

    async def _delete(self, number: int) -> None:
        key = wal_key(self._stream, number)
        await when_available(lambda: self._store.delete(key), rng=self._rng, trouble=self._trouble)

    def _is_check_due(self) -> bool:
        """Creates that come and go tell more."""
        return bool(self._checks) and (self.in_flight == 0 or self._failing is not None)

    def _check_if_due(self) -> None:
        running = self._checker is not None and not self._checker.done()
        if not running and self._ended is None and self._is_check_due():
            self._checker = asyncio.get_running_loop().create_task(
                self._check(), name=f"fence check of {self._stream.prefix}"
            )
            self._checker.add_done_callback(self._reap)

    async def _check(self) -> None:
        """A seal counts where no number is free between what is durable and it: so it stands at the next number at most
        (stream_model.py).
        """
        while self._is_check_due():
            number, is_idle = self._next, self.in_flight == 0
            asked = list(self._checks)
            taken = await together(
                self._is_taken(n) for n in range(self._durable_below, number + 1) if n not in self._created
            )
            if not any(taken):
                self._pass(asked)
            elif self._sealing or (not is_idle and self.in_flight):
                # the own seal may stand there, or an own create that nobody answered: what comes of it answers them
                return
            elif is_idle and self._next == number:
                self._end(self._fenced(number))
                return
            # Otherwise an own create was sent there meanwhile, or is in the store by now. It answers who had asked
            # before it was sent; who asked since is looked up for.

    def _pass(self, checks: Iterable["asyncio.Future[None]"]) -> None:
        is_due = bool(self._passed)
        for future in checks:
            self._checks.pop(future, None)
            self._passed.append(future)
        if not is_due:
            self._pass_some()

    def _pass_some(self) -> None:
        for _ in range(min(PASSED_AT_ONCE, len(self._passed))):
            settle(self._passed.popleft(), None)
        if self._passed:
            asyncio.get_running_loop().call_soon(self._pass_some)

    def _answer(self, checks: Iterable["asyncio.Future[None]"], error: BmqError) -> None:
        for future in checks:
            self._checks.pop(future, None)
            settle(future, error)

    async def _is_taken(self, number: int) -> bool:
        key = wal_key(self._stream, number)
        try:
            await when_available(lambda: self._store.head(key), rng=self._rng, trouble=self._trouble)
        except ObjectMissing:
            return False
        return True

    def _fenced(self, number: int) -> Fenced:
        return Fenced(
            f"another object stands at {wal_key(self._stream, number)}: the stream was sealed, this broker was replaced"
        )

    def _check_alive(self) -> None:
        if self._ended is not None:
            raise self._ended.with_traceback(None)
        if self._closing:
            raise NotReady(f"the writer of {self._stream.prefix} is stopping")

    def _end(self, error: BmqError) -> None:
        if self._ended is None:
            self._silence(error)
            self._on_fenced(error)

    def _silence(self, error: BmqError) -> None:
        """From here on nothing completes and nothing is deleted; `error` is what everybody hears."""
        if self._ended is None:
            self._ended = error
        current = asyncio.current_task()
        for task in (*self._creates, self._deleter, self._checker):
            if task is not None and task is not current:
                task.cancel()
        self._answer(list(self._checks), self._ended)

    def _reap(self, task: "asyncio.Task[None]") -> None:
        self._creates.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        asyncio.get_running_loop().call_exception_handler(
            {"message": f"{task.get_name()} failed", "exception": error, "task": task}
        )
        self._end(StreamBroken(f"{task.get_name()} failed: {error!r}"))
