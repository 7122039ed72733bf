"""Parts batches that clients of the base write to a topic whose records name their lane by a header
(`bmq.lane.header`): each goes to the topic of the lane that it names, the others to the base's.

The base comes last. Its owner, which numbers all of a producer's batches, is asked first whether a batch is the next
one; then the lanes get their parts, then the base gets its own, and the client is answered once that is durable. So
whatever the base has is in the lanes, over whichever proxies its client sends, and a lane's owner, for which a number
that is missing may be one that had nothing for it, gets nothing out of turn (core/tests/models/parting_model.py). What
the base has already goes to no lane again.
"""

import asyncio
from collections import deque
from collections.abc import Collection, Hashable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import takewhile
from typing import Final, Protocol

from typing_extensions import Buffer

from bmq.config.topic_config import LANE_HEADER
from bmq.errors import (
    BatchTooLarge,
    BmqError,
    CorruptBatch,
    InvalidBatch,
    InvalidRecords,
    NotReady,
    NotYetNext,
    OutOfOrderSequence,
    PolicyViolation,
    UnknownLane,
)
from bmq.fairness.giving_way import GivingWay
from bmq.fairness.opening import ORDINARY_BYTES_MAX
from bmq.metadata.image import Image, Topic
from bmq.naming.lane_choice import LaneChoice, TooMuchBaggage
from bmq.naming.lanes import overlay_name
from bmq.roles.controller import Metadata
from bmq.roles.owner import ASKED, NEXT, OF_LANE, PARTED, Appended
from bmq.roles.unheard import SENT_AGAIN
from bmq.storage.durable import cancelled
from bmq.values import TopicPartition
from bmq.wire.batches import BatchHeader, check_crc, only_header, read_header
from bmq.wire.compression import Codec
from bmq.wire.limits import BATCH_HEADERS_MAX, DECOMPRESSED_BYTES_MAX, ZSTD_PRODUCE_VERSION_MIN
from bmq.wire.parting import REST, emptied, parted
from bmq_proxy import metrics
from bmq_proxy.appends import Append, Appends
from bmq_proxy.fair_memory import FairMemory
from bmq_proxy.origins import Origin
from bmq_proxy.proofs import ORDINARY_HEADERS_MAX, Proof, Proofs, is_refused_anywhere
from bmq_proxy.refused import Named

PARTS_TIMES_MAX: Final = 64
"""So many times a batch's bytes its parts are taken to have until they are there: packed one by one, what several of
them have is there as often.
"""
TOLD_MAX: Final = 100
"""So many records of a batch are told what is wrong with them."""


class LaneTopics(Protocol):
    """Who makes topics of lanes."""

    async def make(self, lane: str, names: Collection[str], address: str) -> Mapping[str, BmqError]:
        """Returns when they are there, or cannot be had now; what is known of why, by name. `address`: whose they
        count as.
        """
        ...

    async def close(self) -> None:
        """Ends what is under way."""


class _Batch:
    """One that may have to be parted, from its coming to its end."""

    __slots__ = ("append", "named", "origin", "ready")

    def __init__(self, origin: Origin | None, named: Named) -> None:
        self.origin = origin
        self.named = named
        self.append: Append
        self.ready: asyncio.Future[Buffer] = asyncio.get_running_loop().create_future()
        """The base's part, or all of it, once the lanes have theirs."""


class Parting:
    """One proxy's."""

    def __init__(
        self,
        appends: Appends,
        proofs: Proofs,
        metadata: Metadata,
        topics: LaneTopics,
        *,
        retry_ms: int,
        memory_bytes: int,
    ) -> None:
        """`metadata` is the node's own, with lanes. `retry_ms`: so long an owner that is not ready is asked again.
        `memory_bytes`: what parts may have, shared out among addresses.
        """
        self._appends = appends
        self._proofs = proofs
        self._metadata = metadata
        self._topics = topics
        self._retry_ms = retry_ms
        self._memory = FairMemory(memory_bytes)
        self._loop = asyncio.get_running_loop()
        self._under_way: dict[tuple[Origin | None, Named], deque[_Batch]] = {}
        """What one connection writes to one partition, in order of arrival."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._unsubscribe = metadata.subscribe(_forget_gone)

    def submit(
        self,
        topic: Topic,
        tp: TopicPartition,
        records: Buffer,
        proof: Proof,
        *,
        produce_version: int,
        give_up_at: float,
        origin: Origin | None,
        address: Hashable,
        named: Named,
    ) -> Append:
        """As `Appends.submit`, of a batch that is or will be proved. Raises InvalidBatch."""
        batch = _Batch(origin, named)
        batch.append = self._appends.submit(
            tp,
            records,
            produce_version=produce_version,
            give_up_at=give_up_at,
            origin=origin,
            address=address,
            named=named,
            proof=batch.ready,
        )
        key = origin, named
        self._under_way.setdefault(key, deque()).append(batch)
        batch.append.done.add_done_callback(partial(self._over, batch, key))
        task = self._loop.create_task(self._prepare(batch, topic, proof), name=f"part a batch for {tp}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        batch.ready.add_done_callback(lambda _: task.cancel())  # a batch that is given up is held no longer
        return batch.append

    async def close(self) -> None:
        """Ends what is under way: no lane gets anything of it any more."""
        if not self._is_closed:
            self._is_closed = True
            self._unsubscribe()
        await cancelled(self._tasks)
        await self._topics.close()

    async def _prepare(self, batch: _Batch, topic: Topic, proof: Proof) -> None:
        ready = batch.ready
        try:
            proved = await proof if isinstance(proof, asyncio.Future) else proof.records
            part = await self._written(batch, topic, proved)
            if not ready.done():
                ready.set_result(part)
        except _IsThere as found:
            self._appends.settle(batch.append, found.appended)
        except Exception as error:  # noqa: BLE001 - whoever waits for the batch is told, of a bug, too
            if not ready.done():
                ready.set_exception(error.with_traceback(None))
        finally:
            ready.cancel()
            if isinstance(proof, asyncio.Future):
                proof.cancel()

    async def _written(self, batch: _Batch, topic: Topic, records: Buffer) -> Buffer:
        """The base's part, once lanes have theirs."""
        append, address = batch.append, str(batch.append.address)
        header = only_header(records)
        if header is None or is_refused_anywhere(header):
            return records
        if header.codec is Codec.ZSTD and append.produce_version < ZSTD_PRODUCE_VERSION_MIN:
            return records  # its owner refuses it
        await self._others_before(batch)  # one of them has its parts in memory at a time
        await self._memory.room_for(address)
        room = _Room(self._memory, address)
        room.take(min(PARTS_TIMES_MAX * header.size_bytes, DECOMPRESSED_BYTES_MAX))
        try:
            return await self._parts_written(batch, topic, records, header, room)
        finally:
            room.take(0)

    async def _parts_written(
        self, batch: _Batch, topic: Topic, records: Buffer, header: BatchHeader, room: "_Room"
    ) -> Buffer:
        append = batch.append
        tp, address = append.tp, append.address
        choosing = _Choosing(_choice(topic.configs[LANE_HEADER]), self._metadata.image)
        try:
            found = await self._proofs.opener.look(choosing.look, records, header, party=address, sender=batch.origin)
        except CorruptBatch as error:
            check_crc(records, header)
            raise InvalidBatch(f"which lanes its records are for cannot be told: {error}") from error.with_traceback(
                None
            )
        if found is None and not choosing.wrong:
            return records
        room.take(sum(len(part) for part in (found or {}).values()))
        check_crc(records, header)  # what was damaged on its way may name any lane, and no part may vouch for it
        # No owner sees how large the batch is, and packed anew a part may be larger: it is judged here, as it came.
        if header.size_bytes > (bytes_max := self._proofs.max_message_bytes(tp)):
            raise BatchTooLarge(f"a batch of {header.size_bytes} bytes exceeds max.message.bytes of {bytes_max}")
        largest_ms = [read_header(part).max_timestamp_ms for part in (found or {}).values()]
        asked = emptied(header, max_timestamp_ms=max(largest_ms, default=header.max_timestamp_ms))
        await self._ask(batch, asked)
        choosing.check()
        assert found is not None, f"{tp}: nothing is wrong with a batch that nothing was chosen of"
        places = await self._places(choosing, topic, tp.partition, str(address))
        try:
            await self._write_parts(batch, [(lane, to, found[lane]) for lane, to in places.items()])
        except OutOfOrderSequence:
            # It, and what its producer sent later, may have gone over another proxy.
            await self._ask(batch, asked=asked)
            raise
        append.produce_version = PARTED
        return found[REST]

    async def _others_before(self, batch: _Batch) -> None:
        """Waits until all before it are with the base's owner, or go to none."""
        for before in self._before(batch):
            if not before.ready.done():
                await asyncio.wait([before.ready])
        await asyncio.sleep(0)  # they are sent in the turn behind that in which they are ready

    async def _ask(self, batch: _Batch, asked: bytes) -> None:
        """Returns where the base's owner says that the batch is its producer's next one; raises what it has against it.

        Raises _IsThere where the owner has it.
        """
        while True:
            before = [one.append.done for one in self._before(batch)]
            answer = await self._submitted(batch, batch.append.tp, asked, "asked", ASKED)
            if isinstance(answer, NotYetNext) and before:
                await asyncio.wait(before)  # one of them may be about to be sent again
            elif isinstance(answer, BmqError):
                raise answer
            elif answer.base_offset != NEXT:
                raise _IsThere(answer)
            else:
                return

    def _before(self, batch: _Batch) -> list[_Batch]:
        """What came before it and is not answered."""
        return list(takewhile(lambda one: one is not batch, self._under_way.get((batch.origin, batch.named), ())))

    async def _places(
        self, choosing: "_Choosing", topic: Topic, partition: int, address: str
    ) -> dict[str, TopicPartition]:
        """Where each lane's part goes. Raises InvalidRecords, NotReady."""
        lanes = list(choosing.first)
        missing = [lane for lane in lanes if self._topic(lane, topic.name) is None]
        refused = await asyncio.gather(*[self._topics.make(lane, [topic.name], address) for lane in missing])
        why = {lane: errors.get(topic.name) for lane, errors in zip(missing, refused, strict=True)}
        places = {}
        for lane in lanes:
            own = self._topic(lane, topic.name)
            if own is None:
                if isinstance(error := why.get(lane), PolicyViolation | UnknownLane):
                    choosing.refuse(choosing.first[lane], f"lane {lane} has no topic {topic.name}: {error}")
                else:
                    raise NotReady(f"topic {topic.name} of lane {lane} is being made" + (f": {error}" if error else ""))
            elif partition >= len(own.partitions):
                choosing.refuse(
                    choosing.first[lane],
                    f"partition {partition} of {topic.name}, which lane {lane} has {len(own.partitions)} of: add "
                    "partitions there, or delete the lane's topic",
                )
            else:
                places[lane] = TopicPartition(own.topic_id, partition)
        choosing.check()
        return places

    def _topic(self, lane: str, name: str) -> Topic | None:
        return self._metadata.image.topic(overlay_name(lane, name))

    async def _write_parts(self, batch: _Batch, parts: Sequence[tuple[str, TopicPartition, bytes]]) -> None:
        """Returns once all are durable. Parts are (lane, where to, batch)."""
        answers = await asyncio.gather(*[self._submitted(batch, to, part, "part", OF_LANE) for _, to, part in parts])
        errors = [answer for answer in answers if isinstance(answer, BmqError)]
        for (lane, _, part), answer in zip(parts, answers, strict=True):
            if not isinstance(answer, BmqError):
                metrics.PARTED.labels(lane).inc(read_header(part).record_count)
        if errors:
            raise next((one for one in errors if not isinstance(one, SENT_AGAIN)), errors[0])

    async def _submitted(
        self, batch: _Batch, tp: TopicPartition, records: bytes, what: str, produce_version: int
    ) -> Appended | BmqError:
        """What its owner says."""
        append = batch.append
        named: Named = (tp.topic_id, what), tp.partition
        try:
            appended: Appended = await self._appends.submit(
                tp,
                records,
                produce_version=produce_version,
                give_up_at=min(append.give_up_at, self._loop.time() + self._retry_ms / 1000),
                origin=batch.origin,
                address=append.address,
                named=named,
            ).done
            return appended
        except BmqError as error:
            # Whether it is to come again is said of the whole batch, and until then nothing comes behind it here.
            self._appends.refused.check(batch.origin, named, records)
            return error.with_traceback(None)

    def _over(self, batch: _Batch, key: tuple[Origin | None, Named], _: "asyncio.Future[Appended]") -> None:
        behind = self._under_way[key]
        behind.remove(batch)
        if not behind:
            del self._under_way[key]


class _Room:
    """What one batch's parts hold of the memory."""

    def __init__(self, memory: FairMemory, address: str) -> None:
        self._memory = memory
        self._address = address
        self._size_bytes = 0

    def take(self, size_bytes: int) -> None:
        """So much, instead of what it was."""
        before_bytes, self._size_bytes = self._size_bytes, size_bytes
        self._memory.hold(self._address, size_bytes)
        self._memory.release(self._address, before_bytes)


class _IsThere(Exception):
    """The base has the batch."""

    def __init__(self, appended: Appended) -> None:
        super().__init__()
        self.appended = appended


class _AllTold(Exception):
    """As many records of a batch are wrong as are told: no further one is looked at."""


class _Choosing:
    """Which lane each record of one batch is for, and what is wrong with those that name none there is."""

    def __init__(self, choice: LaneChoice, image: Image) -> None:
        self._choice = choice
        self._image = image
        self.first: dict[str, int] = {}
        """The number of the first record for each lane."""
        self.wrong: list[tuple[int, str]] = []
        """(record's number, why it is not taken)."""

    def look(self, batch: Buffer, header: BatchHeader, /, *, decompressed_bytes_max: int) -> Mapping[str, bytes] | None:
        """The batch's parts, None where it is refused for more than is told; blocking. Raises as
        `bmq.wire.parting:parted`.
        """
        self.first, self.wrong = {}, []
        try:
            return parted(
                batch,
                header,
                wanted=self._choice.header,
                choose=self._choose,
                decompressed_bytes_max=decompressed_bytes_max,
                headers_max=ORDINARY_HEADERS_MAX if decompressed_bytes_max <= ORDINARY_BYTES_MAX else BATCH_HEADERS_MAX,
                step=GivingWay().step,
            )
        except _AllTold:
            return None

    def refuse(self, number: int, why: str) -> None:
        """That record is not taken."""
        if len(self.wrong) < TOLD_MAX:
            self.wrong.append((number, why))

    def check(self) -> None:
        """Raises InvalidRecords where one was refused."""
        if self.wrong:
            number, why = self.wrong[0]
            raise InvalidRecords(f"the batch is refused for record {number}: {why}", tuple(self.wrong))

    def _choose(self, number: int, said: Sequence[bytes]) -> str:
        if len(self.wrong) == TOLD_MAX:
            raise _AllTold
        try:
            names = self._choice.names(said)
        except TooMuchBaggage as error:
            self.refuse(number, str(error))
            return REST
        if len(names) > 1:
            self.refuse(number, f"it names several lanes ({', '.join(sorted(names))[:80]}): name one")
            return REST
        for name in names:
            if name not in self._image.lanes:
                self.refuse(number, f"there is no lane {name[:40]!r}: create it, or leave the header out")
                return REST
            self.first.setdefault(name, number)
            return name
        return REST


def _forget_gone(old: Image, new: Image) -> None:
    if old.lanes is not new.lanes:
        for lane in old.lanes.keys() - new.lanes.keys():
            metrics.forget_parted(lane)


@lru_cache(maxsize=256)
def _choice(text: str) -> LaneChoice:
    return LaneChoice.parse(text)
