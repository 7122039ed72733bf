"""What must hold of every image, by name. The controller checks before it writes an entry; a reader, after it has read
one.

A check compares an image with the one before it and looks only at what changed; a whole image is checked as a change
from the empty one.
"""

from collections.abc import Callable, Iterator
from typing import Final

from bmq.errors import FormatError
from bmq.metadata.channels import changed_names, channel, revision
from bmq.metadata.image import FIRST_TURN, Image, PartitionMeta, Topic, stream_of
from bmq.metadata.records import Whose
from bmq.metadata.shared_map import differences
from bmq.naming.lanes import BASE, lane_of
from bmq.values import NO_NODE, BrokerEpoch, NodeId, TopicPartition

_NEXT_TURN: Final = {Whose.LANE: Whose.BASE, Whose.BASE: Whose.CLOSING, Whose.CLOSING: Whose.LANE}


class InvariantBroken(FormatError):
    """An entry of the metadata log says what can never be: a bug wrote it, or the log is not one writer's."""


def check_step(old: Image, new: Image) -> None:
    """Raises InvariantBroken, naming the first invariant that `new`, a successor of `old`, breaks. O(partitions of
    topics that changed); where a broker that owned some is gone, O(partitions); where a lane is, O(topics)."""
    for problem in broken(old, new):
        raise InvariantBroken(f"metadata log entry {new.position}: {problem}")


def check_image(image: Image) -> None:
    """The same for an image without its history (from a snapshot)."""
    check_step(Image(), image)


def broken(old: Image, new: Image) -> Iterator[str]:
    """Each violation as `name: what was found`."""
    step = _Step(old, new)
    for name, whole in WHOLE.items():
        for found in whole(step):
            yield f"{name}: {found}"
    for tp, before, after in step.changed_partitions():
        for name, single in EACH_PARTITION.items():
            problem = single(new, before, after)
            if problem is not None:
                yield f"{name}: {tp}: {problem}"


class _Step:
    """Two images and, found once, the topics in which they differ."""

    def __init__(self, old: Image, new: Image) -> None:
        self.old = old
        self.new = new
        found = differences(old.topics, new.topics)
        self.changed: list[tuple[Topic | None, Topic]] = [(was, topic) for _, was, topic in found.changed]
        self.gone: list[Topic] = [topic for _, topic in found.gone]

    def changed_partitions(self) -> Iterator[tuple[TopicPartition, PartitionMeta | None, PartitionMeta]]:
        for was, topic in self.changed:
            before = () if was is None else was.partitions
            for index, meta in enumerate(topic.partitions):
                earlier = before[index] if index < len(before) else None
                if earlier is not meta:
                    yield TopicPartition(topic.topic_id, index), earlier, meta


def _numbers_never_go_back(step: _Step) -> Iterator[str]:
    for name in ("position", "controller_epoch", "next_producer_id", "leader_epoch_floor", "next_lane", "next_turn_id"):
        before, after = getattr(step.old, name), getattr(step.new, name)
        if after < before:
            yield f"{name} went from {before} to {after}"


def _channels_are_numbered_in_order(step: _Step) -> Iterator[str]:
    last, number = revision(step.old), revision(step.new)
    if number < last:
        yield f"the last revision of channels went from {last} to {number}"
    for name in changed_names(step.old, step.new):
        found = channel(step.new, name)
        if found is not None and not last < found.revision <= number:
            yield f"channel {name} has revision {found.revision}, the last ones are {last} and {number}"


def _nothing_is_counted_too_rarely(step: _Step) -> Iterator[str]:
    old, new = step.old, step.new
    for node_id, count in new.owned_counts.items() if old.owned_counts is not new.owned_counts else ():
        if count < 0:
            yield f"node {node_id} owns {count} partitions"
    for stream, count in new.range_counts.items() if old.range_counts is not new.range_counts else ():
        if count < 0:
            yield f"{count} ranges name {stream.prefix}"


def _broker_epochs_never_go_back(step: _Step) -> Iterator[str]:
    new = step.new
    for node_id, epoch in step.old.last_epochs.items() if step.old.last_epochs is not new.last_epochs else ():
        if new.last_epochs.get(node_id, -1) < epoch:
            yield f"the last epoch of node {node_id} was {epoch} and is {new.last_epochs.get(node_id)}"
    for node_id, node in new.nodes.items():
        if node.broker_epoch != new.last_epochs.get(node_id):
            yield f"node {node_id} has epoch {node.broker_epoch}, the last one given is {new.last_epochs.get(node_id)}"


def _names_and_ids_agree(step: _Step) -> Iterator[str]:
    new = step.new
    if len(new.topics) != len(new.topic_ids):
        yield f"{len(new.topics)} topics have {len(new.topic_ids)} names"
    for _, topic in step.changed:
        if new.topic_ids.get(topic.name) != topic.topic_id:
            yield f"the name {topic.name!r} of {topic.topic_id} leads to {new.topic_ids.get(topic.name)}"
        if topic.name in new.tombstones:
            yield f"{topic.name!r} lives and has a tombstone"


def _ids_are_never_reused(step: _Step) -> Iterator[str]:
    old, new = step.old, step.new
    for topic_id, _, _ in differences(old.deleted, new.deleted).changed:
        if topic_id in new.topics:
            yield f"topic id {topic_id} is deleted and lives"
    for before, topic in step.changed:
        if before is None and topic.topic_id in old.deleted:
            yield f"topic id {topic.topic_id} was deleted and lives"


def _topics_never_shrink(step: _Step) -> Iterator[str]:
    for before, after in step.changed:
        if before is not None and len(after.partitions) < len(before.partitions):
            yield f"{before.name!r} had {len(before.partitions)} partitions and has {len(after.partitions)}"
        if before is not None and after.name != before.name:
            yield f"{before.name!r} is called {after.name!r}"


def _tombstones_cover_every_epoch(step: _Step) -> Iterator[str]:
    for topic in step.gone:
        last = max(meta.leader_epoch for meta in topic.partitions)
        again = step.new.topic(topic.name)
        starts = (
            step.new.next_leader_epoch(topic.name)
            if again is None
            else min(meta.leader_epoch for meta in again.partitions)
        )
        if starts <= last:
            yield f"{topic.name!r} ended at leader epoch {last}, the next of its name starts at {starts}"


def _seals_never_move(step: _Step) -> Iterator[str]:
    old, new = step.old, step.new
    if old.sealed is new.sealed and old.dropped is new.dropped:
        return
    for stream, end in old.sealed.items():
        now = new.sealed.get(stream, new.dropped.get(stream, end))
        if now != end:
            yield f"{stream.prefix} ended at {end} and ends at {now}"
    for stream in new.sealed:
        if stream in new.dropped or stream in old.dropped:
            yield f"{stream.prefix} was dropped and is named again"


def _no_node_writes_to_a_sealed_stream(step: _Step) -> Iterator[str]:
    for stream in (*step.new.sealed, *step.new.dropped):
        node = step.new.nodes.get(stream.node_id)
        if node is not None and node.broker_epoch == stream.broker_epoch:
            yield f"node {stream.node_id} is registered with the sealed epoch {stream.broker_epoch}"


def _dropped_streams_are_named_by_nobody(step: _Step) -> Iterator[str]:
    for stream in step.new.dropped:
        if stream in step.new.range_counts:
            yield f"{stream.prefix} was dropped, and {step.new.range_counts[stream]} ranges name it"


def _named_streams_are_there(step: _Step) -> Iterator[str]:
    """A range leads to a sealed stream whose data is kept, or to that of a living broker, which keeps its own."""
    old, new = step.old, step.new
    if old.range_counts is new.range_counts and old.sealed is new.sealed and old.nodes is new.nodes:
        return
    for stream, count in new.range_counts.items():
        node = new.nodes.get(stream.node_id)
        if stream not in new.sealed and (node is None or node.broker_epoch != stream.broker_epoch):
            yield f"{count} ranges name {stream.prefix}, which is neither sealed nor a registered node's"


def _fencing_is_of_registered_nodes(step: _Step) -> Iterator[str]:
    for node_id, epoch in step.new.fencing.items():
        node = step.new.nodes.get(node_id)
        if node is None or node.broker_epoch != epoch:
            yield f"node {node_id} of epoch {epoch} is being fenced and is not registered"


def _owners_are_registered(step: _Step) -> Iterator[str]:
    """Where a broker went that owns any (or another of its id does), every partition; else those that changed."""
    brokers, new = _brokers(step.new), step.new
    gone = () if step.old.nodes is new.nodes else _brokers(step.old) - brokers
    has_gone = any(node_id in new.owned_counts for node_id, _ in gone)
    brokers.add((NO_NODE, BrokerEpoch(-1)))
    for topic in new.topics.values() if has_gone else [topic for _, topic in step.changed]:
        for index, meta in enumerate(topic.partitions):
            if (meta.node_id, meta.broker_epoch) not in brokers:
                yield (
                    f"{topic.name}-{index} is owned by node {meta.node_id} of epoch {meta.broker_epoch}, which "
                    "is no registered broker"
                )


def _brokers(image: Image) -> set[tuple[NodeId, BrokerEpoch]]:
    return {(node.node_id, node.broker_epoch) for node in image.nodes.values() if "broker" in node.roles}


def _lanes_topics_have_a_lane(step: _Step) -> Iterator[str]:
    """Where lanes went, every topic; else those that changed."""
    lanes = step.new.lanes
    topics = step.new.topics.values() if step.old.lanes.keys() - lanes.keys() else [topic for _, topic in step.changed]
    for topic in topics:
        lane = lane_of(topic.name)
        if lane != BASE and lane not in lanes:
            yield f"{topic.name!r} is of the lane {lane!r}, which does not exist"


def _lane_numbers_are_never_reused(step: _Step) -> Iterator[str]:
    if step.old.lanes is step.new.lanes:
        return
    for name, lane in step.new.lanes.items():
        before = step.old.lanes.get(name)
        if lane.number >= step.new.next_lane:
            yield f"lane {name!r} has the number {lane.number}, the next one is {step.new.next_lane}"
        if (before is None or before.number != lane.number) and lane.number < step.old.next_lane and step.old.position:
            yield f"lane {name!r} is made with the number {lane.number}, which was given before"


def _leader_epochs_never_go_back(image: Image, before: PartitionMeta | None, after: PartitionMeta) -> str | None:
    if before is None or before is after:
        return None
    if after.leader_epoch < before.leader_epoch:
        return f"leader epoch {before.leader_epoch} went back to {after.leader_epoch}"
    moved = (before.node_id, before.broker_epoch) != (after.node_id, after.broker_epoch)
    if moved and after.leader_epoch == before.leader_epoch:
        return f"the owner changed, the leader epoch stayed {after.leader_epoch}"
    return None


def _ranges_lie_below_seal_and_epoch(image: Image, before: PartitionMeta | None, after: PartitionMeta) -> str | None:
    for found in after.ranges:
        end = image.sealed.get(stream_of(found))
        if end is not None and found.end > end:
            return f"must read {found}, beyond the seal at {end}"
        if found.leader_epoch >= after.leader_epoch:
            return f"must read {found}, of an epoch that is not below its own {after.leader_epoch}"
    return None


def _who_moves_has_an_owner(image: Image, before: PartitionMeta | None, after: PartitionMeta) -> str | None:
    if after.moving_to != NO_NODE and after.node_id == NO_NODE:
        return f"moves to node {after.moving_to} and has no owner that could hand it over"
    return None


def _turns_follow_each_other(step: _Step) -> Iterator[str]:
    if step.old.turns is step.new.turns:
        return
    for tp, before, turn in differences(step.old.turns, step.new.turns).changed:
        topic = step.new.topics.get(tp.topic_id)
        if topic is None or not 0 <= tp.partition < len(topic.partitions) or lane_of(topic.name) == BASE:
            yield f"{tp} has a turn, and is no partition of a lane's topic"
        first = before if before is not None else FIRST_TURN
        if turn == first:
            continue  # read anew
        if turn.begin < first.begin:
            yield f"the turn of {tp} began at {first.begin}, and begins at {turn.begin}"
        if step.old.position and turn.generation <= first.generation:
            yield f"{tp} has turn {turn.generation} after turn {first.generation}"
        if step.old.position and turn.generation == first.generation + 1:  # in one entry there may be several
            if turn.whose is not _NEXT_TURN[first.whose]:
                yield f"the turn of {tp} was the {first.whose}'s, and is the {turn.whose}'s"
            if turn.whose is Whose.CLOSING and turn.producer_id != first.producer_id:
                yield f"the turn of {tp} that closes has the producer id {turn.producer_id} and not {first.producer_id}"
            if turn.whose is Whose.BASE and not step.old.next_turn_id <= turn.producer_id < step.new.next_turn_id:
                yield f"the turn of {tp} has the producer id {turn.producer_id}, which was given before"
        if turn.whose is not Whose.LANE and step.new.turn_ids.get(turn.producer_id) != tp:
            yield f"the producer id {turn.producer_id} of {tp} leads to {step.new.turn_ids.get(turn.producer_id)}"


WHOLE: Final[dict[str, Callable[[_Step], Iterator[str]]]] = {
    "numbers never go back": _numbers_never_go_back,
    "channels are numbered in order": _channels_are_numbered_in_order,
    "nothing is counted too rarely": _nothing_is_counted_too_rarely,
    "broker epochs never go back": _broker_epochs_never_go_back,
    "names and ids agree": _names_and_ids_agree,
    "ids are never reused": _ids_are_never_reused,
    "topics never shrink": _topics_never_shrink,
    "tombstones cover every epoch": _tombstones_cover_every_epoch,
    "seals never move": _seals_never_move,
    "no node writes to a sealed stream": _no_node_writes_to_a_sealed_stream,
    "dropped streams are named by nobody": _dropped_streams_are_named_by_nobody,
    "named streams are there": _named_streams_are_there,
    "fencing is of registered nodes": _fencing_is_of_registered_nodes,
    "owners are registered": _owners_are_registered,
    "lanes' topics have a lane": _lanes_topics_have_a_lane,
    "lane numbers are never reused": _lane_numbers_are_never_reused,
    "turns follow each other": _turns_follow_each_other,
}
EACH_PARTITION: Final[dict[str, Callable[[Image, PartitionMeta | None, PartitionMeta], str | None]]] = {
    "leader epochs never go back": _leader_epochs_never_go_back,
    "ranges lie below seal and epoch": _ranges_lie_below_seal_and_epoch,
    "who moves has an owner": _who_moves_has_an_owner,
}
