"""What stopped a Spark query, in one line that a person can act on: Java's and Python's tracebacks are read for what is
known of them.
"""

import re
from collections.abc import Sequence
from typing import Final

from bmq_spark.batches.places import Range
from bmq_spark.errors import MORE_MEMORY, BmqError, ConfigurationError, JobStopped

_PARTITION: Final = re.compile(
    r"(?:fetching the next record from|[Rr]ecord (?:batch )?for partition|partition) "
    r"([A-Za-z0-9._-]{1,249})-([0-9]{1,9})\b"
)
_OFFSET: Final = re.compile(r"for partition \S+ at offset ([0-9]{1,19}) is invalid")
_CORRUPT: Final = (
    "CorruptRecordException",
    "Received exception when fetching the next record",
    "InvalidRecordException",
    "Unknown compression type",
)
_TIME_OVERFLOWS: Final = ("ArithmeticException", "long overflow")
_WORKER_LATE: Final = "Python worker failed to connect back"
"""Spark gives a process of Python that reads a source ten seconds to start, which is no setting of its."""
_OUT_OF_MEMORY: Final = ("java.lang.OutOfMemoryError", "Cannot allocate memory", "SparkOutOfMemoryError")
_UNREACHABLE: Final = (
    "Timed out waiting for a node assignment",
    "TimeoutException",
    "DisconnectException",
    "Failed to create new KafkaAdminClient",
    "No resolvable bootstrap urls",
)
_REFUSED: Final = (
    "AccessDenied",
    "Access Denied",
    "403 Forbidden",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "NoSuchBucket",
)
_DONE_ON: Final = re.compile(
    r"\b([A-Z][A-Za-z]+(?: [A-Za-z]+){0,3}|[a-z]+[A-Z][A-Za-z]*)(?:\([^()\n]{1,4000}\))? on ([^\s:]{1,300})"
)
"""What S3A was doing to which object, in its words: `Writing Object on a` or `copyFile(a, b) on a`."""
_OURS: Final = re.compile(r"^(?:bmq(?:_spark)?\.[a-z_.]+)\.([A-Z][A-Za-z]+): (.+)$", re.MULTILINE)
_READ_ON: Final = re.compile(r"to read on behind (?:it|this segment) begin at (?:a later offset|(offset [0-9]{1,19}))")
"""What the source `bmq` says to those who choose where to begin: a job begins where its table ends."""
_CAUSED_BY: Final = re.compile(r"^\s*Caused by: (?:[\w.$]+\.)?([\w$]+): (.+)$", re.MULTILINE)
_THROWN: Final = re.compile(r"^: (?:[\w.$]+\.)?([\w$]+): (.+)$", re.MULTILINE)
"""The second line of what py4j says; the first names the call alone."""
_RAISED: Final = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)$", re.MULTILINE)
_CONDITION: Final = re.compile(r"\[[A-Z_.]+\] (?:Query \[[^\]]*\] terminated with exception: )?(.+)")


def explained(error: Exception, *, servers: str, ranges: Sequence[Range] = (), checkpoint: str = "") -> BmqError:
    """The error to end with. `ranges` are what the batch under way was to add, to say where something cannot be read;
    `checkpoint` is a URI.
    """
    text = str(error)
    if ours := _OURS.findall(text):
        name, message = ours[-1]
        return (ConfigurationError if name == "ConfigurationError" else JobStopped)(_READ_ON.sub(_delete, message))
    if any(word in text for word in _OUT_OF_MEMORY):
        return JobStopped(
            f"{_named(ranges) or 'Spark'}: out of memory: {cause(text)}: the place is kept; {MORE_MEMORY}, and run it "
            "again"
        )
    if any(word in text for word in _CORRUPT):
        return _unreadable(text, ranges)
    if all(word in text for word in _TIME_OVERFLOWS):
        return JobStopped(
            f"{_named(ranges) or 'a topic'}: a record has a timestamp that Spark's Kafka connector cannot hold "
            "(nanoseconds, by the look of it): read it with --source bmq, which takes it for the last one that "
            "there is; the table keeps its place"
        )
    if any(word in text for word in _REFUSED):
        return _refused(text, checkpoint)
    if any(word in text for word in _UNREACHABLE):
        return JobStopped(
            f"brokers {servers}: no answer: {cause(text)}: start them, or name others by --bootstrap-servers"
        )
    return JobStopped(
        f"Spark: {cause(text)}: the place is kept; BMQ_SPARK_LOG=WARN shows Spark's log, BMQ_DEBUG=1 the traceback"
    )


def is_worker_late(error: Exception) -> bool:
    """Whether a process of Python took longer to start than Spark waits, as on a machine that has much else to do."""
    return _WORKER_LATE in str(error)


def cause(text: str) -> str:
    """The innermost cause that is named, bounded."""
    if raised := _RAISED.findall(text):
        return str(raised[-1]).strip()[:300]
    if causes := _CAUSED_BY.findall(text):
        return f"{causes[-1][0]}: {causes[-1][1].strip()}"[:300]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if found := _CONDITION.search(text):
        return found[1].strip()[:300]
    if thrown := _THROWN.search(text):
        return f"{thrown[1]}: {thrown[2].strip()}"[:300]
    return (lines[0] if lines else "it gave no reason")[:300]


def _delete(found: re.Match[str]) -> str:
    offset = found[1] or "the offset behind it"
    return f"to go on behind it delete records up to {offset} (DeleteRecords), and run once with --accept-loss"


def _refused(text: str, checkpoint: str) -> JobStopped:
    word, done = next(word for word in _REFUSED if word in text), _DONE_ON.search(text)
    what = f"{done[1]} on {done[2]}" if done else cause(text)
    said = what if word in what else f"{word}: {what}"
    where = f" (checkpoint {checkpoint})" if checkpoint else ""
    return JobStopped(
        f"the bucket refuses: {said}{where}: check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and what they may do; "
        "the place is kept"
    )


def _unreadable(text: str, ranges: Sequence[Range]) -> JobStopped:
    found, offset = _PARTITION.search(text), _OFFSET.search(text)
    if found:
        ranges = [part for part in ranges if (part.topic, part.partition) == (found[1], int(found[2]))]
    where = (
        f"topic {found[1]} partition {found[2]}, offset {offset[1]}"
        if found and offset
        else _named(ranges) or "a topic"
    )
    return JobStopped(
        f"{where}: a batch cannot be read: {cause(text)}: `bmq store check --repair` repairs what can be repaired; the "
        "table keeps its place"
    )


def _named(ranges: Sequence[Range]) -> str:
    return " or ".join(
        f"topic {part.topic} partition {part.partition}, within offsets {part.start} to {part.end - 1}"
        for part in ranges[:3]
    )
