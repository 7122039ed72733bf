"""What must hold of every image, by name. The controller checks before it writes an entry; a reader, after it has read one.

A check compares an image with the one before it and looks only at what changed; a whole image is checked as a change from the empty one.
"""

from collections.abc import Callable, Iterator
from typing import Final

from bmq.errors import FormatError
from bmq.metadata.image import Image, PartitionMeta, stream_of
from bmq.values import TopicPartition


class InvariantBroken(FormatError):
    """An entry of the metadata log says what can never be: a bug wrote it, or the log is not one writer's."""


def check_step(old: Image, new: Image) -> None:
    """Raises InvariantBroken, naming the first invariant that `new`, the successor of `old`, breaks."""
    for problem in broken(old, new):
        raise InvariantBroken(f"metadata log entry {new.position}: {problem}")


def check_image(image: Image) -> None:
    """The same for an image without its history (from a snapshot)."""
    check_step(Image(), image)


def broken(old: Image, new: Image) -> Iterator[str]:
    """Each violation as `name: what was found`."""
    for name, whole in WHOLE.items():
        for found in whole(old, new):
            yield f"{name}: {found}"
    for tp, before, after in _changed_partitions(old, new):
        for name, single in EACH_PARTITION.items():
            problem = single(new, before, after)
            if problem is not None:
                yield f"{name}: {tp}: {problem}"


def _changed_partitions(old: Image, new: Image) -> Iterator[tuple[TopicPartition, PartitionMeta | None, PartitionMeta]]:
    everything = old.nodes is not new.nodes or old.sealed is not new.sealed
    if old.topics is new.topics and not everything:
        return
    for topic_id, topic in new.topics.items():
        earlier = old.topics.get(topic_id)
        if topic is earlier and not everything:
            continue
        before = () if earlier is None else earlier.partitions
        for index, meta in enumerate(topic.partitions):
            was = before[index] if index < len(before) else None
            if everything or was is not meta:
                yield TopicPartition(topic_id, index), was, meta


def _numbers_never_go_back(old: Image, new: Image) -> Iterator[str]:
    for name in ("position", "controller_epoch", "next_producer_id", "leader_epoch_floor"):
        before, after = getattr(old, name), getattr(new, name)
        if after < before:
            yield f"{name} went from {before} to {after}"


def _broker_epochs_never_go_back(old: Image, new: Image) -> Iterator[str]:
    if old.last_epochs is not new.last_epochs:
        for node_id, epoch in old.last_epochs.items():
            if new.last_epochs.get(node_id, -1) < epoch:
                yield f"the last epoch of node {node_id} was {epoch} and is {new.last_epochs.get(node_id)}"
    for node_id, node in new.nodes.items():
        if node.broker_epoch != new.last_epochs.get(node_id):
            yield f"node {node_id} has epoch {node.broker_epoch}, the last one given is {new.last_epochs.get(node_id)}"


def _names_and_ids_agree(old: Image, new: Image) -> Iterator[str]:
    if old.topics is new.topics and old.topic_ids is new.topic_ids:
        return
    if len(new.topics) != len(new.topic_ids):
        yield f"{len(new.topics)} topics have {len(new.topic_ids)} names"
    for name, topic_id in new.topic_ids.items():
        topic = new.topics.get(topic_id)
        if topic is None or topic.name != name:
            yield f"the name {name!r} leads to {topic_id}, which is {None if topic is None else topic.name!r}"
        if name in new.tombstones:
            yield f"{name!r} lives and has a tombstone"


def _ids_are_never_reused(old: Image, new: Image) -> Iterator[str]:
    for topic_id in new.topics if old.topics is not new.topics or old.deleted is not new.deleted else ():
        if topic_id in old.deleted or topic_id in new.deleted:
            yield f"topic id {topic_id} is deleted and lives"


def _topics_never_shrink(old: Image, new: Image) -> Iterator[str]:
    if old.topics is new.topics:
        return
    for topic_id, before in old.topics.items():
        after = new.topics.get(topic_id)
        if after is not None and len(after.partitions) < len(before.partitions):
            yield f"{before.name!r} had {len(before.partitions)} partitions and has {len(after.partitions)}"
        if after is not None and after.name != before.name:
            yield f"{before.name!r} is called {after.name!r}"


def _tombstones_cover_every_epoch(old: Image, new: Image) -> Iterator[str]:
    if old.topics is new.topics:
        return
    for topic_id, before in old.topics.items():
        if topic_id in new.topics:
            continue
        last = max(meta.leader_epoch for meta in before.partitions)
        again = new.topic(before.name)
        starts = new.next_leader_epoch(before.name) if again is None else min(meta.leader_epoch for meta in again.partitions)
        if starts <= last:
            yield f"{before.name!r} ended at leader epoch {last}, the next of its name starts at {starts}"


def _seals_never_move(old: Image, new: Image) -> Iterator[str]:
    if old.sealed is new.sealed and old.dropped is new.dropped:
        return
    for stream, end in old.sealed.items():
        now = new.sealed.get(stream, new.dropped.get(stream, end))
        if now != end:
            yield f"{stream.prefix} ended at {end} and ends at {now}"
    for stream in new.sealed:
        if stream in new.dropped or stream in old.dropped:
            yield f"{stream.prefix} was dropped and is named again"


def _no_node_writes_to_a_sealed_stream(old: Image, new: Image) -> Iterator[str]:
    if old.nodes is new.nodes and old.sealed is new.sealed:
        return
    for stream in (*new.sealed, *new.dropped):
        node = new.nodes.get(stream.node_id)
        if node is not None and node.broker_epoch == stream.broker_epoch:
            yield f"node {stream.node_id} is registered with the sealed epoch {stream.broker_epoch}"


def _leader_epochs_never_go_back(image: Image, before: PartitionMeta | None, after: PartitionMeta) -> str | None:
    if before is None or before is after:
        return None
    if after.leader_epoch < before.leader_epoch:
        return f"leader epoch {before.leader_epoch} went back to {after.leader_epoch}"
    moved = (before.node_id, before.broker_epoch) != (after.node_id, after.broker_epoch)
    if moved and after.leader_epoch == before.leader_epoch:
        return f"the owner changed, the leader epoch stayed {after.leader_epoch}"
    return None


def _owners_are_registered(image: Image, before: PartitionMeta | None, after: PartitionMeta) -> str | None:
    if after.node_id == -1:
        return None
    node = image.nodes.get(after.node_id)
    if node is None or node.broker_epoch != after.broker_epoch:
        return f"owned by node {after.node_id} of epoch {after.broker_epoch}, which is not registered"
    if "broker" not in node.roles:
        return f"owned by node {after.node_id}, which is no broker"
    return None


def _ranges_are_in_streams_that_are_kept(image: Image, before: PartitionMeta | None, after: PartitionMeta) -> str | None:
    for found in after.ranges:
        end = image.sealed.get(stream_of(found))
        if end is None and stream_of(found) in image.dropped:
            return f"must read {found}, of a stream that was dropped"
        if end is not None and found.end > end:
            return f"must read {found}, beyond the seal at {end}"
        if found.leader_epoch >= after.leader_epoch:
            return f"must read {found}, of an epoch that is not below its own {after.leader_epoch}"
    return None


WHOLE: Final[dict[str, Callable[[Image, Image], Iterator[str]]]] = {
    "numbers never go back": _numbers_never_go_back,
    "broker epochs never go back": _broker_epochs_never_go_back,
    "names and ids agree": _names_and_ids_agree,
    "ids are never reused": _ids_are_never_reused,
    "topics never shrink": _topics_never_shrink,
    "tombstones cover every epoch": _tombstones_cover_every_epoch,
    "seals never move": _seals_never_move,
    "no node writes to a sealed stream": _no_node_writes_to_a_sealed_stream,
}
EACH_PARTITION: Final[dict[str, Callable[[Image, PartitionMeta | None, PartitionMeta], str | None]]] = {
    "leader epochs never go back": _leader_epochs_never_go_back,
    "owners are registered": _owners_are_registered,
    "ranges are in streams that are kept": _ranges_are_in_streams_that_are_kept,
}
