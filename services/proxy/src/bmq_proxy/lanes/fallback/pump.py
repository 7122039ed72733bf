"""Hands over what is in a lane's topics while it is the base's turn: reads the lane's partitions, writes to the base's,
or to those of the lane that it is nested in.

Any number of proxies may do so with the same partition. The base's owner takes each message once and in order, and its
log alone says how far that is: what is remembered here is asked for again whenever something is not as it was thought.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from typing_extensions import Buffer

from bmq.errors import BmqError, NotReady, OffsetOutOfRange, TurnIsOver
from bmq.fairness.grouping import in_groups
from bmq.fairness.log_limit import RateLimited
from bmq.fairness.opening import Opener
from bmq.metadata.image import Image, Turn
from bmq.metadata.records import Whose
from bmq.roles.controller import Metadata
from bmq.roles.lane_turns import LaneControl
from bmq.roles.owner import HANDED_OVER, Appended, Owner
from bmq.storage.durable import cancelled
from bmq.values import TopicPartition
from bmq.wire.batches import BatchHeader
from bmq_proxy import metrics
from bmq_proxy.fetch.answers import Found, Read, Result, whole
from bmq_proxy.fetch.reader import Reader
from bmq_proxy.lanes.fallback.rewriting import Piece, Rewritten, rewritten
from bmq_proxy.lanes.fallback.runs import Gap, Run, run_at
from bmq_proxy.lanes.fallback.waits import LaneWaits

READ_BYTES: Final = 1 << 20
READ_AT_ONCE: Final = 500
APPENDS_AT_ONCE: Final = 100
"""Each that is refused costs the base's owner a look at the store."""
APPENDED_BYTES: Final = 1 << 20
"""What is rewritten is handed on before more is: no partition has more of it at a time, beside one step's."""
OPENING: Final = "lanes that fall back"
"""As one party all of them have batches opened, and each lane its turns in that."""
WAIT_MS: Final = 30_000
SETTLED_S: Final = 0.5
"""What changes meanwhile ends a wait for messages, but not before so long: turns of one topic begin one after the
other."""
PAUSE_S: Final = 0.2
DISTANCE_MAX: Final = 1 << 30
"""After so many messages a turn is ended and another one begun: sequences begin again after twice as many."""
COMPLAIN_EVERY_S: Final = 10.0

_log = structlog.get_logger("bmq.lanes")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    turn: Turn
    next_offset: int


class LanePump:
    """One lane's."""

    def __init__(
        self,
        lane: str,
        *,
        control: LaneControl,
        metadata: Metadata,
        owner_for: Callable[[TopicPartition], Owner],
        reader: Reader,
        rewriting: asyncio.Semaphore,
        opener: Opener,
        waits: LaneWaits,
    ) -> None:
        """`rewriting`: how many partitions of all lanes have batches rewritten at a time, which `opener` opens. `waits`
        is told what waits.
        """
        self._lane = lane
        self._control = control
        self._metadata = metadata
        self._owner_for = owner_for
        self._reader = reader
        self._rewriting = rewriting
        self._opener = opener
        self._waits = waits
        self._nested_of: tuple[object, frozenset[bytes]] = (None, frozenset())
        self._places: dict[TopicPartition, _Place] = {}
        self.goes_on_at: dict[TopicPartition, int] = {}
        """Where what is to go on begins again behind offsets that have none: no turn of the base's begins below."""
        self._party = ("", f"lane {lane}")
        self._complaints = RateLimited(interval_s=COMPLAIN_EVERY_S)

    async def hand_over(self, tps: Sequence[TopicPartition], changed: asyncio.Event) -> None:
        """What there is in these partitions now; waits where there is nothing, until `changed` says that they may be
        others. Raises no BmqError.
        """
        self._places = {tp: place for tp, place in self._places.items() if self._metadata.image.turn(tp) == place.turn}
        self.goes_on_at = {tp: at for tp, at in self.goes_on_at.items() if self._metadata.image.turn(tp).begin < at}
        self._waits.keep(tps)
        known = [tp for tp in tps if await self._place(tp) is not None]
        if not known:
            await asyncio.sleep(PAUSE_S)
            return
        wait_ms = WAIT_MS if len(known) <= READ_AT_ONCE else 0
        found_any = False
        for some in in_groups(known, READ_AT_ONCE):
            found_any |= await self._hand_over(some, wait_ms, changed)
        if not found_any and not wait_ms:
            await asyncio.sleep(PAUSE_S)

    async def _hand_over(self, tps: Sequence[TopicPartition], wait_ms: int, changed: asyncio.Event) -> bool:
        reads = [Read(tp=tp, offset=self._places[tp].next_offset, max_bytes=READ_BYTES) for tp in tps]
        reading = asyncio.ensure_future(
            self._reader.read(reads, min_bytes=1, max_bytes=READ_BYTES, max_wait_ms=wait_ms, party=self._party)
        )
        try:
            await _done_or_changed(reading, changed)
        finally:
            if not reading.done():
                await cancelled([reading])
        if reading.cancelled():
            return False
        result = reading.result()
        try:
            taking = [self._take(read.tp, found) for read, found in zip(reads, result.found, strict=True)]
            outcomes = await asyncio.gather(*taking, return_exceptions=True)  # all are over before the memory is free
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome
            return any(found.size_bytes for found in result.found)
        finally:
            result.release()
            self._waits.settle()

    async def _take(self, tp: TopicPartition, found: Found) -> None:
        place = self._places[tp]
        if found.error is not None:
            self._waits.unknown(tp)
        else:
            self._waits.found(tp, found.high_watermark - place.next_offset)
        if isinstance(found.error, OffsetOutOfRange) or place.next_offset - place.turn.begin > DISTANCE_MAX:
            # What was to go on next is deleted: the next turn of the base's begins where there is something.
            await self._begin_anew(tp)
        elif found.error is not None:
            self._complain(tp, found.error)
            await asyncio.sleep(PAUSE_S)
        elif found.parts:
            async with self._rewriting:
                if not await self._append(tp, place, found):
                    self._places.pop(tp, None)
                elif (now := self._places.get(tp)) is not None:
                    self._waits.found(tp, found.high_watermark - now.next_offset)

    async def _append(self, tp: TopicPartition, place: _Place, found: Found) -> bool:
        """Hands on what was found, a few batches a step: between two of them others have theirs opened."""
        log = memoryview(whole(found.parts))
        made: list[Piece] = []
        position, next_offset = 0, place.next_offset
        while isinstance(run := run_at(log, position, next_offset), Run):
            step = await self._rewritten(log[run.position : run.end], run.first, place.turn, next_offset)
            made += step.pieces
            position, next_offset = run.position + step.position, step.next_offset
            if len(made) >= APPENDS_AT_ONCE or sum(len(piece.batch) for piece in made) >= APPENDED_BYTES:
                if not await self._handed_on(tp, place.turn, made):
                    return False
                made = []
        if made and not await self._handed_on(tp, place.turn, made):
            return False
        if isinstance(run, Gap):
            self.goes_on_at[tp] = run.goes_on_at
            await self._begin_anew(tp)
        return True

    async def _rewritten(self, batches: memoryview, first: BatchHeader, turn: Turn, from_offset: int) -> Rewritten:
        """In a place of those in which this proxy opens what clients write."""

        def look(batches: Buffer, _: BatchHeader, /, *, decompressed_bytes_max: int) -> Rewritten:
            return rewritten(
                batches,
                decompressed_bytes_max=decompressed_bytes_max,
                from_offset=from_offset,
                begin=turn.begin,
                producer_id=turn.producer_id,
                lane=self._lane,
                nested=nested,
            )

        nested = self._nested(self._metadata.image)
        return await self._opener.look(look, batches, first, party=OPENING, sender=self._lane)

    async def _handed_on(self, tp: TopicPartition, turn: Turn, made: Sequence[Piece]) -> bool:
        """Whether the base has these now."""
        assert turn.base_topic_id is not None, f"{tp} goes on to no topic"
        base_tp = TopicPartition(turn.base_topic_id, tp.partition)
        for some in in_groups(made, APPENDS_AT_ONCE):
            # They come in this order, and the base's owner takes none where one before it is missing.
            if (error := await self._refused(base_tp, some)) is not None:
                if not isinstance(error, (NotReady, TurnIsOver)):
                    self._complain(tp, error)
                await asyncio.sleep(PAUSE_S)
                return False
        metrics.HANDED_OVER.labels(self._lane).inc(made[-1].next_offset - self._places[tp].next_offset)
        self._places[tp] = _Place(turn=turn, next_offset=made[-1].next_offset)
        return True

    async def _refused(self, base_tp: TopicPartition, made: Sequence[Piece]) -> BmqError | None:
        """Hands these over; why one was not taken."""
        try:
            owner = self._owner_for(base_tp)
        except BmqError as error:  # nobody owns it at present
            return error
        return await _first_error(
            [owner.append(base_tp, piece.batch, produce_version=HANDED_OVER, party=self._party) for piece in made]
        )

    def _nested(self, image: Image) -> frozenset[bytes]:
        """The names of the lanes that are nested in this one, however deep."""
        if image.lanes is not self._nested_of[0]:
            names = (
                lane.name.encode()
                for lane in image.lanes.values()
                if lane.parent and any(parent.name == self._lane for parent in image.parents(lane))
            )
            self._nested_of = image.lanes, frozenset(names)
        return self._nested_of[1]

    async def _place(self, tp: TopicPartition) -> _Place | None:
        """How far the base has it; None: it is not its turn, or nobody can say now."""
        turn = self._metadata.image.turn(tp)
        if turn.whose is not Whose.BASE or turn.base_topic_id is None:
            return None
        if (place := self._places.get(tp)) is not None:
            return place
        self._waits.unknown(tp)
        base = self._metadata.image.topics.get(turn.base_topic_id)
        if base is None or tp.partition >= len(base.partitions):
            await self._begin_anew(tp)  # with the topic that has its name now, if there is one
            return None
        base_tp = TopicPartition(base.topic_id, tp.partition)
        try:
            found = await self._owner_for(base_tp).handed_over(base_tp, turn.producer_id)
        except BmqError as error:
            if not isinstance(error, (NotReady, TurnIsOver)):
                self._complain(tp, error)
            return None
        place = self._places[tp] = _Place(turn=turn, next_offset=turn.begin + found.count)
        return place

    async def _begin_anew(self, tp: TopicPartition) -> None:
        """Has the base's turn end, as if somebody consumed in the lane: as nobody does, another one follows."""
        self._places.pop(tp, None)
        try:
            await self._control.consumed([tp.topic_id])
        except BmqError as error:
            self._complain(tp, error)

    def _complain(self, tp: TopicPartition, error: BmqError) -> None:
        left_out = self._complaints.due(type(error).__name__, now=asyncio.get_running_loop().time())
        if left_out is not None:
            _log.warning(
                "messages of a lane wait to go on to the base",
                lane=self._lane,
                partition=str(tp),
                error=str(error),
                left_out=left_out,
            )


async def _done_or_changed(reading: "asyncio.Future[Result]", changed: asyncio.Event) -> None:
    await asyncio.wait((reading,), timeout=SETTLED_S)
    if reading.done() or changed.is_set():
        return
    other = asyncio.ensure_future(changed.wait())
    try:
        await asyncio.wait((reading, other), return_when=asyncio.FIRST_COMPLETED)
    finally:
        other.cancel()


async def _first_error(appends: "Sequence[asyncio.Future[Appended]]") -> BmqError | None:
    """Once all are over."""
    outcomes = await asyncio.gather(*appends, return_exceptions=True)
    first = next((outcome for outcome in outcomes if isinstance(outcome, BaseException)), None)
    if first is not None and not isinstance(first, BmqError):
        raise first
    return first
