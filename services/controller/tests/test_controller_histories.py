"""Random histories of the controller's decisions against the invariants and a plain model of what brokers wrote."""

import contextlib
from uuid import UUID

import pytest
from controller_committed import Committed
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bmq.errors import (
    Fenced,
    InvalidRequest,
    UnknownTopic,
)
from bmq.metadata.codec import decode_records, decode_snapshot, encode_records, encode_snapshot
from bmq.metadata.derived import count_lane_partitions, count_owners, count_ranges, find_moving, measure_configs
from bmq.metadata.fold import apply
from bmq.metadata.image import Image
from bmq.metadata.invariants import check_image
from bmq.metadata.records import StreamSealed
from bmq.roles.controller import ClosedPartition, Heartbeat, NewTopic
from bmq.values import LeaderEpoch, NodeId, Nonce, StreamId, TopicId, TopicPartition
from bmq_controller.machine.fencing import begin_fencing, complete_fencing
from bmq_controller.machine.limits import Limits
from bmq_controller.machine.moves import drain, move
from bmq_controller.machine.nodes import collected, cordon, heartbeat, report_covered, report_stopped
from bmq_controller.machine.placement import living_broker
from bmq_controller.machine.producer_ids import allocate_producer_ids
from bmq_controller.machine.topics import create_partitions, delete_topics

NODES = st.integers(1, 3)
NAMES = st.sampled_from(["a", "b", "c"])


class Histories(RuleBasedStateMachine):
    """Random operations. `written` is the plain model: what each owner wrote of each partition and no manifest
    covers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Committed()
        self.boots = 100
        self.lengths: dict[StreamId, int] = {}
        self.written: dict[TopicPartition, set[tuple[StreamId, int, int]]] = {}
        self.closed: dict[tuple[TopicPartition, StreamId, int], int] = {}
        """What owners closed, and where: they write no more of it, and the report may come at any time, also twice."""
        self.given: set[int] = set()
        self.topic_ids: set[TopicId] = set()

    @rule(name=NAMES, partitions=st.integers(1, 4), twice=st.booleans())
    def create(self, name: str, partitions: int, twice: bool) -> None:
        topics = [NewTopic(name=name, partitions=partitions), NewTopic(name=name + "2", partitions=1)]
        self.cluster.create(*topics, *(topics[:1] if twice else []))
        self.topic_ids |= set(self.cluster.image.topics)

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        topic_id = self.cluster.image.topic_ids.get(name)
        if topic_id is not None:
            self.cluster.commit(delete_topics(self.cluster.image, [topic_id], cluster={}).records)
            self.written = {tp: batches for tp, batches in self.written.items() if tp.topic_id != topic_id}

    @rule(name=NAMES, more=st.integers(1, 2))
    def grow(self, name: str, more: int) -> None:
        topic = self.cluster.image.topic(name)
        if topic is not None:
            total = len(topic.partitions) + more
            self.cluster.commit(create_partitions(self.cluster.image, name, total, limits=Limits()).records)

    @rule(node_id=NODES, roles=st.sampled_from([("broker",), ("broker",), ("broker", "proxy"), ("proxy",)]))
    def register(self, node_id: int, roles: tuple[str, ...]) -> None:
        self.boots += 1
        node = self.cluster.image.nodes.get(NodeId(node_id))
        end = 0 if node is None else self.lengths.get(StreamId(node.node_id, node.broker_epoch), 0)
        self.cluster.register(node_id, boot=self.boots, end=end, roles=roles)

    @rule(node_id=NODES)
    def stop(self, node_id: int) -> None:
        node = self.cluster.image.nodes.get(NodeId(node_id))
        if node is not None:
            end = self.lengths.get(StreamId(node.node_id, node.broker_epoch), 0)
            self.cluster.commit(report_stopped(self.cluster.image, node.node_id, node.broker_epoch, end=end).records)

    @rule(node_id=NODES)
    def write(self, node_id: int) -> None:
        """One WAL object with a batch of every other partition that the broker owns."""
        node = self.cluster.image.nodes.get(NodeId(node_id))
        if node is None or "broker" not in node.roles:
            return
        stream = StreamId(node.node_id, node.broker_epoch)
        number = self.lengths.get(stream, 0)
        self.lengths[stream] = number + 1
        for topic in self.cluster.image.topics.values():
            for index, meta in enumerate(topic.partitions):
                tp = TopicPartition(topic.topic_id, index)
                if (tp, stream, meta.leader_epoch) in self.closed:
                    continue
                if (meta.node_id, meta.broker_epoch) == stream and (index + number) % 2 == 0:
                    self.written.setdefault(tp, set()).add((stream, meta.leader_epoch, number))

    @rule(name=NAMES, partition=st.integers(0, 3), what=st.integers(1, 3))
    def cover(self, name: str, partition: int, what: int) -> None:
        """The owner's manifest covers the oldest ranges of one partition."""
        topic_id = self.cluster.image.topic_ids.get(name)
        if topic_id is None:
            return
        tp = TopicPartition(topic_id, partition)
        meta = self.cluster.image.partition(tp)
        if meta is None or meta.node_id == -1:
            return
        ranges = meta.ranges[:what]
        self.written[tp] = {
            (stream, epoch, number)
            for stream, epoch, number in self.written.get(tp, set())
            if not any(
                (found.node_id, found.broker_epoch) == stream and found.leader_epoch == epoch for found in ranges
            )
        }
        self.cluster.commit(report_covered(self.cluster.image, meta.node_id, meta.broker_epoch, [(tp, ranges)]).records)

    @rule(name=NAMES, partition=st.integers(0, 3), node_id=NODES)
    def begin_to_move(self, name: str, partition: int, node_id: int) -> None:
        topic_id = self.cluster.image.topic_ids.get(name)
        if topic_id is not None:
            with contextlib.suppress(UnknownTopic, InvalidRequest):
                self.cluster.commit(
                    move(self.cluster.image, TopicPartition(topic_id, partition), NodeId(node_id)).records
                )

    @rule(node_id=NODES)
    def begin_to_drain(self, node_id: int) -> None:
        with contextlib.suppress(InvalidRequest):
            self.cluster.commit(drain(self.cluster.image, NodeId(node_id)).records)

    @rule(node_id=NODES, cordoned=st.booleans())
    def cordon(self, node_id: int, cordoned: bool) -> None:
        with contextlib.suppress(InvalidRequest):
            self.cluster.commit(cordon(self.cluster.image, NodeId(node_id), cordoned=cordoned).records)

    @rule(node_id=NODES, every=st.integers(1, 2))
    def close(self, node_id: int, every: int) -> None:
        """The owner closes partitions that are to move (or every other of them): it writes no more of them, ever, under
        this leader epoch.
        """
        for tp in list(self.cluster.image.moving)[::every]:
            meta = self.cluster.image.partition(tp)
            assert meta is not None
            if meta.node_id == node_id:
                stream = StreamId(meta.node_id, meta.broker_epoch)
                self.closed.setdefault((tp, stream, meta.leader_epoch), self.lengths.get(stream, 0))

    @precondition(lambda self: self.closed)
    @rule(data=st.data(), count=st.integers(1, 8), drained=st.booleans())
    def report(self, data: st.DataObject, count: int, drained: bool) -> None:
        """Any old or new report of closed partitions, of one incarnation."""
        reports = sorted(self.closed, key=str)
        _, stream, _ = data.draw(st.sampled_from(reports))
        closed = [
            ClosedPartition(tp=tp, leader_epoch=LeaderEpoch(epoch), end=self.closed[tp, of, epoch])
            for tp, of, epoch in reports
            if of == stream
        ][:count]
        node = self.cluster.image.nodes.get(stream.node_id)
        boot = node.boot if node is not None else UUID(int=0)
        beat = Heartbeat(node_id=stream.node_id, broker_epoch=stream.broker_epoch, boot=boot, closed=tuple(closed))
        if self.lives(stream) and stream.node_id not in self.cluster.image.fencing:
            self.cluster.commit(heartbeat(self.cluster.image, beat, is_drained=drained).records)
        else:
            with pytest.raises(Fenced):
                heartbeat(self.cluster.image, beat, is_drained=drained)

    @rule(node_id=NODES)
    def begin_to_fence(self, node_id: int) -> None:
        node = self.cluster.image.nodes.get(NodeId(node_id))
        if node is not None:
            self.cluster.commit(begin_fencing(self.cluster.image, (node.node_id, node.broker_epoch)).records)

    @precondition(lambda self: self.cluster.image.fencing)
    @rule(node_id=NODES)
    def fence(self, node_id: int) -> None:
        epoch = self.cluster.image.fencing.get(NodeId(node_id))
        if epoch is not None:
            stream = StreamId(NodeId(node_id), epoch)
            decision = complete_fencing(self.cluster.image, stream, end=self.lengths.get(stream, 0))
            assert decision.result
            self.cluster.commit(decision.records)
            assert complete_fencing(self.cluster.image, stream, end=0).records == ()

    def lives(self, stream: StreamId) -> bool:
        node = self.cluster.image.nodes.get(stream.node_id)
        return node is not None and node.broker_epoch == stream.broker_epoch

    @invariant()
    def moves_lead_to_living_brokers_unless_their_owner_is_being_fenced(self) -> None:
        image = self.cluster.image
        for tp, to in image.moving.items():
            meta = image.partition(tp)
            assert meta is not None
            assert living_broker(image, to) is not None or living_broker(image, meta.node_id) is None

    @rule(count=st.integers(1, 5))
    def allocate(self, count: int) -> None:
        decision = allocate_producer_ids(self.cluster.image, count)
        self.cluster.commit(decision.records)
        assert not self.given & set(decision.result)
        self.given |= set(decision.result)

    @precondition(lambda self: self.cluster.image.dropped or self.cluster.image.deleted)
    @rule()
    def collect(self) -> None:
        image = self.cluster.image
        self.cluster.commit(collected(image, streams=list(image.dropped), topics=list(image.deleted)).records)

    @invariant()
    def the_image_holds_all_invariants(self) -> None:
        check_image(self.cluster.image)

    @invariant()
    def what_was_written_and_is_not_covered_is_named(self) -> None:
        for tp, batches in self.written.items():
            meta = self.cluster.image.partition(tp)
            assert meta is not None
            for stream, epoch, number in batches:
                if (*stream, epoch) == (meta.node_id, meta.broker_epoch, meta.leader_epoch):
                    continue
                named = [
                    r
                    for r in meta.ranges
                    if (r.node_id, r.broker_epoch) == stream and r.leader_epoch == epoch and number < r.end
                ]
                assert named, f"{tp}: object {number} of {stream} is named by none of {meta.ranges}"
                assert stream in self.cluster.image.sealed or self.lives(stream)

    @invariant()
    def sealed_streams_are_named_and_named_ones_are_there(self) -> None:
        image = self.cluster.image
        assert set(image.sealed) <= set(image.range_counts)
        assert all(stream in image.sealed or self.lives(stream) for stream in image.range_counts)
        assert image.owned_counts == count_owners(image.topics)
        assert image.lane_partitions == count_lane_partitions(image.topics)
        assert image.moving == find_moving(image.topics)
        assert image.range_counts == count_ranges(image.topics)
        assert image.config_bytes == measure_configs(image.topics, image.configs, image.lanes)

    def teardown(self) -> None:
        """The records, stored and read back, fold into the same image; a snapshot of it is the same image."""
        image = Image()
        for records in self.cluster.entries:
            image = apply(image, image.position + 1, decode_records(encode_records(records), what="entry"))
        assert image == self.cluster.image
        data = b"".join(encode_snapshot(image, entry_nonce=Nonce(bytes(16)), nonce=Nonce(bytes(16))))
        assert decode_snapshot(data, what="snapshot")[0] == image
        sealed = [
            (r.node_id, r.broker_epoch)
            for records in self.cluster.entries
            for r in records
            if isinstance(r, StreamSealed)
        ]
        assert len(set(sealed)) == len(sealed), "a stream is sealed once"


Histories.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestHistories = Histories.TestCase
