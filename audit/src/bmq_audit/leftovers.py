"""What an audit found and knows no owner of: foreign keys, topics, partitions and streams that the metadata did not
have when it began.

Told at its end, by the metadata as it is then: what was made or deleted while the audit ran is no fault.
"""

from dataclasses import dataclass, field

from bmq.metadata.image import Image
from bmq.storage.keys import partition_prefix, topic_prefix
from bmq.values import StreamId, TopicId, TopicPartition
from bmq_audit.findings import Kind, Report
from bmq_audit.places import PlaceKind
from bmq_audit.survey import Survey


@dataclass(slots=True)
class Unknown:
    """`partitions`: with their bytes, of topics that are known. `streams`: (stream, data objects, bytes)."""

    topics: set[TopicId] = field(default_factory=set)
    partitions: dict[TopicPartition, int] = field(default_factory=dict)
    streams: list[tuple[StreamId, int, int]] = field(default_factory=list)


def tell_leftovers(report: Report, survey: Survey, *, before: Image, now: Image, unknown: Unknown) -> None:
    """`before` and `now`: the image when the audit began, and at its end."""
    gone = [topic for topic_id, topic in before.topics.items() if topic_id not in now.topics]
    report.forget(
        prefixes=tuple(topic_prefix(topic.topic_id) for topic in gone),
        topics=frozenset(topic.name for topic in gone if topic.name not in now.topic_ids),
    )
    _tell_foreign(report, survey)
    _tell_topics(report, survey, before=before, now=now, unknown=unknown)
    _tell_streams(report, now=now, unknown=unknown)
    scratch = survey.kinds[PlaceKind.SCRATCH]
    if scratch.objects:
        text = "scratch objects of self-tests and of comparisons of clocks: bmq clears them"
        report.note(Kind.DUE, "clock/, selftest/", text, objects=scratch.objects, size_bytes=scratch.size_bytes)


def _tell_foreign(report: Report, survey: Survey) -> None:
    for meta in survey.foreign:
        report.fault(
            Kind.FOREIGN,
            meta.key,
            "bmq makes no such key: another program's, or another cluster's under a prefix of this one. Move it "
            "elsewhere, or delete it yourself",
            size_bytes=meta.size_bytes,
        )


def _tell_topics(report: Report, survey: Survey, *, before: Image, now: Image, unknown: Unknown) -> None:
    for tp, size_bytes in sorted(unknown.partitions.items()):
        topic = now.topics.get(tp.topic_id)
        if topic is None or tp.partition < len(topic.partitions):
            continue
        text = (
            f"objects of partition {tp.partition}; {topic.name} has {len(topic.partitions)} partitions: "
            "somebody else put them there"
        )
        report.fault(Kind.FOREIGN, partition_prefix(tp), text, topic=topic.name, size_bytes=size_bytes)
    for topic_id in sorted(unknown.topics):
        total = survey.topics[topic_id].total
        prefix = topic_prefix(topic_id)
        if topic_id in now.deleted:
            text = f"the topic {now.deleted[topic_id]} was deleted: the controller deletes its objects"
            report.note(
                Kind.DUE, prefix, text, topic=now.deleted[topic_id], objects=total.objects, size_bytes=total.size_bytes
            )
        elif topic_id not in now.topics and topic_id not in before.deleted:
            text = (
                f"{total.objects} objects of a topic that the metadata does not know. Made late, when the topic "
                "had been deleted and collected? Then the controller deletes them. Or are the newest metadata "
                "entries missing? Then do not start bmq: it would delete a topic"
            )
            report.fault(Kind.FOREIGN, prefix, text, size_bytes=total.size_bytes)


def _tell_streams(report: Report, *, now: Image, unknown: Unknown) -> None:
    for stream, objects, size_bytes in unknown.streams:
        node = now.nodes.get(stream.node_id)
        if (node is not None and node.broker_epoch == stream.broker_epoch) or stream in now.sealed:
            continue
        if stream.broker_epoch <= now.last_epochs.get(stream.node_id, -1):
            text = (
                "objects of a stream that was collected: made late, by a broker that was replaced; the "
                "controller deletes them"
            )
            report.note(Kind.DUE, stream.prefix, text, objects=objects, size_bytes=size_bytes)
        else:
            text = (
                f"no node {stream.node_id} ever had the epoch {stream.broker_epoch}: another cluster's WAL, or "
                "the metadata went back in time"
            )
            report.behind = True
            report.fault(Kind.FOREIGN, stream.prefix, text, size_bytes=size_bytes)
