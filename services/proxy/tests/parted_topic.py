"""A topic of the base whose records name their lane by a header, behind a proxy in memory: what tests of it share."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from proxy_in_memory import Client, Running, running_proxy
from test_proxy_lane_produce import Gate

from bmq.config.topic_config import LANE_HEADER
from bmq.errors import InvalidBatch, NotReady, NotYetNext, OutOfOrderSequence
from bmq.fairness.turns import NOBODY, Party
from bmq.metadata.image import Lane, PartitionMeta, Topic
from bmq.naming.lanes import lane_of, name_in_lane, overlay_id
from bmq.roles.owner import ASKED, NEXT, OF_LANE, Appended
from bmq.values import LeaderEpoch, NodeId, Offset, TopicId, TopicPartition
from bmq.wire.batch_headers import split
from bmq.wire.message import Message
from bmq.wire.records import Record, build_batch, iterate_records
from bmq_proxy.settings import ProxySettings

LANES = ("dev", "prod")
NAMED = "x-lane"
Said = tuple[bytes, str | None]
"""A record's value and its header's content."""


def with_lanes(*said: Said, name: str = NAMED, **batch: int) -> bytes:
    """A batch as a client of the base writes it."""
    return build_batch(
        [
            Record(0, 1_000 + number, None, value, () if lane is None else ((name, lane.encode()),))
            for number, (value, lane) in enumerate(said)
        ],
        **batch,  # type: ignore[arg-type]
    )


def numbered(sequence: int, *said: Said, producer_id: int = 7) -> bytes:
    """The same, of an idempotent producer."""
    return with_lanes(*said, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)


class Owners:
    """Stands before the owner in memory: knows producers' numbers, as owners do, and refuses what a test says."""

    def __init__(self, proxy: Running) -> None:
        self._proxy = proxy
        self._append = proxy.owner.append
        proxy.owner.append = self._asked  # type: ignore[method-assign]
        self.refuses: dict[str, Exception] = {}
        """What is answered to all that is written to the topic of this name."""
        self.refuses_written: dict[str, Exception] = {}
        """The same, but not to who asks whether a batch is the next one."""
        self.refuses_once: dict[str, Exception] = {}
        self.refused: list[tuple[str, int]] = []
        """(topic, sequence)."""
        self.held: dict[str, asyncio.Event] = {}
        """What is written to the topic of this name is decided on when this is set."""
        self.asked: list[tuple[str, int]] = []
        """(topic, sequence) of all that came to be written."""
        self.questions: list[int] = []
        """Sequences of which the base's owner was asked whether they are next."""
        self.got: list[tuple[str, int, bytes]] = []
        """(topic, in place of Produce's version, what was written) of what was not refused."""
        self.is_impatient = False
        """What precedes a batch is waited for no more."""
        self.before: Callable[[str], Awaitable[None]] | None = None
        """Is awaited before it is decided on what is written to the topic of this name; what it raises is answered."""
        self._known: dict[tuple[TopicPartition, int, int, int], asyncio.Future[Appended]] = {}
        self._next: dict[tuple[TopicPartition, int, int], int] = {}
        self._in_order: dict[TopicPartition, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._refusals: Counter[TopicPartition] = Counter()

    def _asked(
        self, tp: TopicPartition, records: Any, *, produce_version: int, party: Party = NOBODY
    ) -> "asyncio.Future[Appended]":
        name = self._proxy.metadata.image.topics[tp.topic_id].name
        sequence = split(records)[0].base_sequence
        if produce_version == ASKED:
            self.questions.append(sequence)
        else:
            self.asked.append((name, sequence))
        take = partial(self._take, name, tp, bytes(records), produce_version, party)
        return asyncio.ensure_future(self._in_turn(tp, take, refusals=self._refusals[tp]))

    async def _in_turn(self, tp: TopicPartition, take: Callable[[], Awaitable[Appended]], *, refusals: int) -> Appended:
        """One after the other; with what is refused for now goes what has come behind it."""
        async with self._in_order[tp]:
            try:
                if self._refusals[tp] != refusals:
                    raise NotReady("behind one that was refused")
                return await take()
            except NotReady:
                self._refusals[tp] += 1
                raise

    async def _take(
        self, name: str, tp: TopicPartition, records: bytes, produce_version: int, party: Party
    ) -> Appended:
        header, *more = split(records)
        if name in self.held:
            await self.held[name].wait()
        error = InvalidBatch("exactly one record batch") if more else self.refuses.get(name)
        if produce_version != ASKED:
            error = error or self.refuses_written.get(name)
        if (error := error or self.refuses_once.pop(name, None)) is not None:
            self.refused.append((name, header.base_sequence))
            raise error
        if self.before is not None:
            await self.before(name)
        if produce_version != ASKED:
            self.got.append((name, produce_version, records))
        writer = tp, header.producer_id, header.producer_epoch
        key = *writer, header.base_sequence
        if header.producer_id < 0 or key not in self._known:
            expected = self._next.get(writer, header.base_sequence if produce_version == OF_LANE else 0)
            ahead = header.base_sequence - expected
            if produce_version != OF_LANE and header.producer_id >= 0 and ahead > 0 and not self.is_impatient:
                raise NotYetNext("what it sent before may be on its way")
            if header.producer_id >= 0 and (ahead < 0 or (ahead and produce_version != OF_LANE)):
                raise OutOfOrderSequence(f"{name}: {header.base_sequence} where {expected} is expected")
            if produce_version == ASKED:
                return Appended(base_offset=NEXT, log_append_time_ms=-1, log_start=Offset(0))
            self._next[writer] = header.last_sequence + 1
            self._known[key] = self._append(tp, records, produce_version=produce_version, party=party)
        return await asyncio.shield(self._known[key])

    def forget(self, name: str) -> None:
        """The numbers of what the topic of this name has, but for the last one."""
        topic = self._proxy.metadata.image.topic(name)
        assert topic is not None
        for key in [key for key in self._known if key[0].topic_id == topic.topic_id]:
            del self._known[key]

    def log(self, name: str, partition: int = 0) -> list[tuple[int, bytes]]:
        """(offset, value) of what the topic of this name has."""
        topic = self._proxy.metadata.image.topic(name)
        found = []
        for _, _, data in (
            () if topic is None else self._proxy.owner.log(TopicPartition(topic.topic_id, partition)).batches
        ):
            for header in split(data):
                found += [(record.offset, record.value or b"") for record in iterate_records(data, header)]
        return found

    def values(self, name: str) -> list[bytes]:
        return [value for _, value in self.log(name)]


def add_overlay(proxy: Running, name: str, _: int, configs: Mapping[str, str] | None = None, width: int = 3) -> Topic:
    """As the controller makes a lane's topic."""
    image = proxy.metadata.image
    lane, base = image.lanes[lane_of(name)], name_in_lane(name)
    number = image.next_leader_epoch(name)
    topic_id = overlay_id(image.cluster_id, lane.number, base, number, base_id=image.topic_ids.get(base))
    meta = PartitionMeta(node_id=NodeId(1), leader_epoch=LeaderEpoch(3))
    topic = Topic(topic_id=TopicId(topic_id), name=name, partitions=(meta,) * width, configs=dict(configs or {}))
    proxy.metadata.change(
        topics={**image.topics, topic.topic_id: topic}, topic_ids={**image.topic_ids, name: topic.topic_id}
    )
    return topic


Test = Callable[[Running, Client, Owners, Gate], Awaitable[None]]


def on_parted_topic(test: Test, settings: ProxySettings | None = None, *, header: str = NAMED, **configs: str) -> None:
    """A client of the base, which has the topic `orders` of three partitions; there are two lanes without topics."""

    async def main() -> None:
        async with running_proxy(settings) as proxy:
            lanes = {name: Lane(name=name, number=number, created_ms=0) for number, name in enumerate(LANES, 1)}
            proxy.metadata.change(lanes=lanes)
            more = {name.replace("_", "."): value for name, value in configs.items()}
            proxy.metadata.add_topic("orders", 3, {LANE_HEADER: header, **more})
            proxy.metadata.add_topic = partial(add_overlay, proxy)  # type: ignore[method-assign]
            gate = Gate(proxy)
            gate.open.set()
            await asyncio.wait_for(test(proxy, await proxy.connect(), Owners(proxy), gate), 20)

    asyncio.run(main())


async def told(client: Client, *batches: bytes, partition: int = 0, **options: Any) -> list[int]:
    """The codes of batches that were sent one behind the other."""
    sent = [client.send_produce("orders", {partition: one}, **options) for one in batches]
    return [(await answer(client)).error_code for _ in sent]


async def answer(client: Client) -> Message:
    """What is said of the one partition of the next answer."""
    _, message = await client.receive()
    [topic] = message.responses
    [partition] = topic.partition_responses
    return partition
