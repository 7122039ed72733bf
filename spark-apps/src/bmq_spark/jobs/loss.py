"""Records that are gone before the job came to them (retention overtook it, or the log is shorter than it was), and
records that did not come though the log has them. Pure.
"""

from collections.abc import Sequence

from bmq.config.topic_config import READING_LANES_FIRST_OFFSET
from bmq.naming.names import is_internal
from bmq_spark.batches.places import Counts, Places, Range, each, place
from bmq_spark.errors import JobStopped

NAMED_MAX = 5


def gone(places: Places, starts: Places) -> list[Range]:
    """What lies between the places and where the logs begin now."""
    found = []
    for topic, partition, have in each(places):
        start = place(starts, topic, partition)
        if start is not None and start > have:
            found.append(Range(topic=topic, partition=partition, start=have, end=start))
    return found


def unseen(known: Places, starts: Places) -> list[Range]:
    """What is gone of partitions of which nothing is known, in topics of which something is: they were added, and their
    first records went before the job saw them. Own topics of lanes that read the base's have nothing below an offset.
    """
    found = []
    for topic, partition, start in each(starts):
        first = READING_LANES_FIRST_OFFSET if start >= READING_LANES_FIRST_OFFSET else 0
        if known.get(topic) and place(known, topic, partition) is None and start > first:
            found.append(Range(topic=topic, partition=partition, start=first, end=start))
    return found


def went_unseen(lost: Sequence[Range], *, what: str) -> str:
    """What to say of records that went unseen."""
    count = sum(part.count for part in lost)
    return (
        f"{_named(lost)}: {count} offsets are gone from the log, and not in {what}: the partitions were added, and "
        "retention (or DeleteRecords) took these before the job saw them. The run goes on after them; run the job more "
        "often than retention takes records, or make that longer"
    )


def check_ends(places: Places, ends: Places, *, what: str) -> None:
    """Raises JobStopped where a log ends below what the table has of it: offsets would be given twice."""
    for topic, partition, have in each(places):
        end = place(ends, topic, partition)
        if end is not None and end < have:
            raise JobStopped(
                f"topic {topic} partition {partition}: it ends at offset {end}, but {what} has it up to {have}: "
                "the cluster lost records, or is another one: name the right one by --bootstrap-servers, or give "
                "the topic another --output"
            )


def check_counts(ranges: Sequence[Range], counts: Counts) -> None:
    """Raises JobStopped where fewer records came than these ranges have offsets; `counts` are those that came.

    Logs have no gaps, but for internal topics, those whose batches are parted among lanes (ranges of these are not for
    this: `Cluster.parted`), and where a repair put nothing in the place of what was lost. Kafka's consumer goes on
    behind the offset that a record says, also where that leaves its batch, and Spark takes what lies between for
    records of a transaction, which nobody is to see.
    """
    short = [
        (part, missing)
        for part in ranges
        if (missing := part.count - counts.get((part.topic, part.partition), 0)) > 0 and not is_internal(part.topic)
    ]
    if not short:
        return
    named = ", ".join(f"{part} ({missing} of {part.count})" for part, missing in short[:NAMED_MAX])
    more = f" and {len(short) - NAMED_MAX} more" if len(short) > NAMED_MAX else ""
    raise JobStopped(
        f"{named}{more}: Spark's Kafka connector passed over so many records: a batch there says offsets beyond "
        "its own; nothing was committed. Read with --source bmq, which stops at that batch and names its offset (or "
        "reads on, where `bmq store check --repair` left offsets without records). Where it stops, DeleteRecords "
        "up to the offset behind it, then run once with --accept-loss"
    )


def overtaken(holes: Sequence[Range], *, what: str) -> JobStopped:
    """What to raise for holes that nobody accepted."""
    count = sum(hole.count for hole in holes)
    return JobStopped(
        f"{_named(holes)}: {count} offsets are gone from the log before {what} had them (retention, or DeleteRecords): "
        "run once with --accept-loss to go on after them; the commit will name them"
    )


def set_back(holes: Sequence[Range], *, what: str) -> JobStopped:
    """What to raise for holes that a batch would leave in a table which stood further."""
    return JobStopped(
        f"{_named(holes)}: {what} has them no more, and did when the batch before was added: was it rolled back "
        "while the job ran? Run the job again: it begins where the table is"
    )


def _named(holes: Sequence[Range]) -> str:
    return ", ".join(str(hole) for hole in holes[:NAMED_MAX]) + (
        f" and {len(holes) - NAMED_MAX} more" if len(holes) > NAMED_MAX else ""
    )
