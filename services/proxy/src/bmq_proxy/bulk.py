"""Work with many elements: bounded before it begins, and done so that others wait for no more than a moment of it.

Three means. Wide requests are admitted by their bytes, and wide answers by their elements; narrow requests have room
for so many elements, and who finds none there is admitted as a wide one is. What is pure (decoding, encoding) is done
beside the event loop, one piece of work at a time. What has to look at the node's state is done in turns: one short
turn of one request in each turn of the loop, however many requests are at it. Who waits for any of these waits by
address, and within that by connection.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Final, TypeVar

from bmq.config.limits import Limits
from bmq.fairness.fair_room import FairRoom
from bmq.fairness.turns import Turns
from bmq.wire.limits import PRODUCE_PARTITIONS_MAX
from bmq.wire.message import Message
from bmq_proxy.admission import Admission, Admitted, ByAddress
from bmq_proxy.calls import Call
from bmq_proxy.fair_memory import FairMemory

T = TypeVar("T")

TURN_ELEMENTS: Final = 200
"""What a request does in one turn: a millisecond or two."""
BEGUN_AT_ONCE: Final = 4
"""So many of a request's elements that are worked on beside each other begin with it, the others in turns."""
BESIDE_OTHERS_MAX: Final = 5_000
"""Pieces of work, of all requests together, that are done beside another one of the same request: each is a task of
some KiB while it waits."""
WIDE_ELEMENTS: Final = 1_000
"""An answer with more is a wide one."""
SMALL_BYTES: Final = 256
"""A request of so many is not counted: what it holds is about what any request does, and its connection."""
FEW_PARTITIONS: Final = 10
"""A Fetch of so many is not counted: what it holds while it waits is about what any request does."""
ELEMENT_BYTES_MIN: Final = 2
"""What an element of an array takes in a request at least: a text of one letter."""
PRODUCE_PARTITION_BYTES_MIN: Final = 5
"""The same of a partition in a Produce request."""
DELETIONS_PER_ADDRESS: Final = 64
"""Partitions of which owners delete records at a time for clients at one address, by a proxy."""
LISTS_AT_ONCE: Final = 2
"""So many lists of groups are asked for at a time: each has all coordinators say all that they have."""
SAID_MAX: Final = 1_000
"""Groups of which it is remembered that much is said of them."""
COUNTED_ANSWER_BYTES: Final = 64 << 10
"""Smaller answers are not counted: sockets take them."""


class LastSaid:
    """What answers about each group last said, where that was much: the next one is taken to say as much."""

    def __init__(self) -> None:
        self._bytes: dict[str, int] = {}

    def of(self, group_id: str) -> int:
        """In bytes; 0: little, or nobody knows."""
        return self._bytes.get(group_id, 0)

    def keep(self, group_id: str, size_bytes: int) -> None:
        """Remembers it for groups of which much is said now, and was lately."""
        self._bytes.pop(group_id, None)
        if size_bytes > COUNTED_ANSWER_BYTES:
            if len(self._bytes) >= SAID_MAX:
                del self._bytes[next(iter(self._bytes))]
            self._bytes[group_id] = size_bytes


class Bulk:
    """One proxy's. Bytes of records have budgets of their own."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.answers = FairMemory(limits.answer_memory_bytes)
        """Answers that clients have yet to take."""
        self._requests = Admission(limits.wide_requests_bytes)
        self._elements = Admission(limits.wide_request_elements)
        self._narrow = FairRoom(limits.wide_request_elements)
        self._producing = Admission(limits.wide_request_elements)
        self._building = Admission(limits.wide_answer_elements)
        self._building_narrow = FairRoom(limits.wide_answer_elements)
        self._listing = Admission(LISTS_AT_ONCE)
        self._collecting = Admission(limits.answer_memory_bytes)
        self._apart = Admission(1)
        self._fetching = Admission(limits.fetch_partitions_held)
        self._fetching_at_leisure = FairRoom(limits.fetch_partitions_held)
        self._beside = FairRoom(BESIDE_OTHERS_MAX)
        self._look_ups = ByAddress(limits.look_ups_per_address)
        self._deletions = ByAddress(DELETIONS_PER_ADDRESS)
        self.listed_bytes = 0
        """What the last list of groups said."""
        self.listed_groups = 0
        """How many the last list of groups had, which is how many the next one may have."""
        self.said = LastSaid()
        """What the offsets of groups say."""
        self.turns = Turns()

    def is_wide(self, size_bytes: int) -> bool:
        """Whether a request of that size has to be admitted."""
        return size_bytes > self.limits.request_inline_bytes_max

    def is_small(self, size_bytes: int) -> bool:
        """Whether a request of that size is not counted."""
        return size_bytes <= SMALL_BYTES

    @asynccontextmanager
    async def request(self, call: Call, size_bytes: int, decode: Callable[[], Message]) -> AsyncIterator[Message]:
        """A request, while it is worked on, which may be long: others wait. A wide one is decoded beside the event
        loop. Raises WireError.
        """
        at_most = min(size_bytes // ELEMENT_BYTES_MIN, self.limits.request_elements_max)
        if self.is_small(size_bytes):
            yield decode()
            return
        if not self.is_wide(size_bytes):
            address = call.client_host
            request, count = _counted(decode, at_most)
            if self._narrow.has(count, address=address):
                with self._narrow.holding(count, address=address):
                    yield request
                return
            del request  # each of its bytes has become dozens: it is decoded anew when its turn has come
        request, elements = await self._wide_request(call, size_bytes, decode, at_most)
        try:
            yield request
        finally:
            elements.keep(0)

    async def _wide_request(
        self, call: Call, size_bytes: int, decode: Callable[[], Message], at_most: int
    ) -> tuple[Message, Admitted]:
        """Before it is decoded nobody knows how many elements it has, and afterwards they are there: those who have to
        wait for room for theirs are decoded once more when they have it.
        """
        counted = partial(_counted, decode, at_most)
        async with self._requests.admitted(call, size_bytes):
            request, count = await self.apart(call, counted)
            if self._elements.has_room(call, count):
                return request, await self._elements.enter(call, count)
        del request
        elements = await self._elements.enter(call, count)
        try:
            async with self._requests.admitted(call, size_bytes):
                request, _ = await self.apart(call, counted)
        except BaseException:
            elements.keep(0)
            raise
        return request, elements

    @asynccontextmanager
    async def producing(self, call: Call, size_bytes: int) -> AsyncIterator[Admitted]:
        """While a Produce request is worked on that is begun in turns."""
        async with self._producing.admitted(
            call, min(size_bytes // PRODUCE_PARTITION_BYTES_MIN, PRODUCE_PARTITIONS_MAX)
        ) as partitions:
            yield partitions

    def parsing(self, call: Call, size_bytes: int) -> AbstractAsyncContextManager[Admitted]:
        """While a wide Fetch request is parsed."""
        return self._requests.admitted(call, size_bytes)

    @asynccontextmanager
    async def fetching(self, call: Call, partitions: int, *, waits: Callable[[], None]) -> AsyncIterator[bool]:
        """While a Fetch of so many partitions is under way, and whether it may wait for records as long as it likes:
        others may wait for their turn.

        Each partition is some 450 bytes while it is waited for, and looked at anew with each record of any of them: so
        those of narrow requests have a bound, too. Whose address has its part of that takes its turn among wide ones.
        `waits` is called of one that has to wait for it.
        """
        address = call.client_host
        if partitions <= FEW_PARTITIONS:
            yield True
        elif partitions <= WIDE_ELEMENTS and self._fetching_at_leisure.has(partitions, address=address):
            with self._fetching_at_leisure.holding(partitions, address=address):
                yield True
        else:
            if not self._fetching.has_room(call, partitions):
                waits()
            async with self._fetching.admitted(call, partitions):
                yield False

    @asynccontextmanager
    async def building(self, call: Call, elements: int) -> AsyncIterator[None]:
        """While an answer of so many elements is put together. A wide one is begun only where clients take theirs; of
        narrow ones that take several turns there are so many at a time, and who finds no room among them is admitted as
        a wide one is.
        """
        address = call.client_host
        if elements <= TURN_ELEMENTS:
            yield
        elif elements <= WIDE_ELEMENTS and self._building_narrow.has(elements, address=address):
            with self._building_narrow.holding(elements, address=address):
                yield
        else:
            admitted = await self._entered(self._building, call, elements)
            try:
                yield
            finally:
                admitted.keep(0)

    def listing(self, call: Call) -> AbstractAsyncContextManager[Admitted]:
        """While coordinators are asked for their groups: how many they have nobody knows before, nor whether it has
        grown since.
        """
        return self._listing.admitted(call, 1)

    async def built(self, call: Call, elements: int) -> bool:
        """The same until it is encoded: it waits for that with all of what it says. For those that are never `large` or
        `collecting`. Whether it is a wide one.
        """
        address = call.client_host
        is_wide = elements > WIDE_ELEMENTS
        if not is_wide and self._building_narrow.has(elements, address=address):
            self._building_narrow.take(elements, address=address)
            call.let_go = partial(self._building_narrow.give_back, elements, address=address)
        elif elements > TURN_ELEMENTS:
            admitted = await self._entered(self._building, call, elements)
            call.let_go = partial(admitted.keep, 0)
        return is_wide

    async def collecting(self, call: Call, size_bytes_max: int) -> Admitted:
        """For an answer of few elements and perhaps many bytes, from before it is asked for until it is encoded and
        counted.
        """
        admitted = await self._entered(self._collecting, call, size_bytes_max)
        call.let_go = partial(admitted.keep, 0)
        return admitted

    async def large(self, call: Call, size_bytes: int) -> None:
        """Before an answer is encoded that says so much: clients take theirs first. What is said is held by who was
        asked.
        """
        call.answer_bytes = size_bytes
        if size_bytes > COUNTED_ANSWER_BYTES:
            await self.collecting(call, size_bytes)

    async def _entered(self, admission: Admission, call: Call, size: int) -> Admitted:
        """Once its address has taken so much of its answers that there is room for more, for which it keeps nobody
        else out.
        """
        while True:
            await self.answers.room_for(call.client_host)
            admitted = await admission.enter(call, size)
            if self.answers.fits(call.client_host):
                return admitted
            admitted.keep(0)

    def counted(self, call: Call, size_bytes: int) -> Callable[[], None] | None:
        """Counts an answer until what is returned is called; None: it is too small for that."""
        if size_bytes <= COUNTED_ANSWER_BYTES:
            return None
        self.answers.hold(call.client_host, size_bytes)
        return partial(self.answers.release, call.client_host, size_bytes)

    async def apart(self, call: Call, work: Callable[[], T]) -> T:
        """The result of pure work, done in a thread. Raises what it raises. What has begun counts until it is over,
        also where nobody wants it.
        """
        admitted = await self._apart.enter(call, 1)
        working = asyncio.get_running_loop().run_in_executor(None, work)
        working.add_done_callback(partial(_over, admitted))
        try:
            return await asyncio.shield(working)
        finally:
            del working  # its error has this frame

    async def looked_up(self, call: Call, ask: Callable[[], Awaitable[T]]) -> T:
        """What an owner is asked about one partition: of each address few stand there, in whose queues others stand
        behind them.
        """
        return await self._look_ups.run(call, ask)

    async def deleted(self, call: Call, ask: Callable[[], Awaitable[T]]) -> T:
        """What an owner is asked to delete of one partition, which takes as long as its store does, and is carried
        through when the client has gone: few of each address are on their way.
        """
        return await self._deletions.run(call, ask)

    async def turn(self, call: Call) -> None:
        """Lets the loop go on, until it is this request's turn again."""
        await self.turns.turn(party=call.client_host, sender=call.origin)

    def pace(self, call: Call) -> "Pace":
        """What one request's loops ask after each step."""
        return Pace(self, call)

    async def paced(self, call: Call, items: Iterable[T], *, each: int = 1) -> AsyncIterator[T]:
        """The items, with a turn between as many as make TURN_ELEMENTS; `each` is what one counts."""
        pace = self.pace(call)
        for item in items:
            yield item
            await pace.step(each)

    async def each(
        self, call: Call, work: Callable[[T], "asyncio.Future[object] | object"], items: Sequence[T], *, at_once: int
    ) -> list[object]:
        """`work` (a coroutine function) for each item, in order, at most so many at a time: no task for each of
        thousands. Where many requests do that, and all of those whose address has its part of it, one at a time.
        """
        address = call.client_host
        workers = min(at_once, len(items))
        if workers > 1 and not self._beside.has(workers - 1, address=address):
            workers = 1
        results: list[object] = [None] * len(items)
        numbers = iter(range(len(items)))

        async def worker(nth: int) -> None:
            done = 0 if nth < BEGUN_AT_ONCE else TURN_ELEMENTS // at_once  # several requests begin in one turn
            for number in numbers:
                if done >= TURN_ELEMENTS // at_once:
                    done = 0
                    await self.turn(call)
                done += 1
                results[number] = await work(items[number])  # type: ignore[misc]

        with self._beside.holding(max(0, workers - 1), address=address):
            await asyncio.gather(*(worker(nth) for nth in range(workers)))
        return results


def _over(admitted: Admitted, working: "asyncio.Future[Any]") -> None:
    if not working.cancelled():
        working.exception()  # there may be nobody any more to be told
    admitted.keep(0)


def _counted(decode: Callable[[], Message], at_most: int) -> tuple[Message, int]:
    request = decode()
    return request, elements_of(request, at_most=at_most)


def elements_of(value: object, *, at_most: int) -> int:
    """How many elements the arrays of a request or reply have, those of its arrays' elements included; it stops
    counting above `at_most`.
    """
    if isinstance(value, Message):
        value = value.__dict__
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    count = len(inner) if isinstance(inner, list | tuple) else 0
    for one in inner:
        if count > at_most:
            break
        if not isinstance(one, str | int | bytes | None):
            count += elements_of(one, at_most=at_most - count)
    return count


class Pace:
    """How far one request has come since its last turn."""

    __slots__ = ("_bulk", "_call", "_done")

    def __init__(self, bulk: Bulk, call: Call) -> None:
        self._bulk = bulk
        self._call = call
        self._done = 0

    async def step(self, elements: int = 1) -> None:
        """So many elements were done: waits for the next turn where that is enough for one."""
        self._done += elements
        if self._done >= TURN_ELEMENTS:
            self._done = 0
            await self._bulk.turn(self._call)
