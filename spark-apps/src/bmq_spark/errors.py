"""Every error that the jobs raise on purpose. The message says in one line what happened, to what, and what to do about
it.
"""

from typing import Final

from bmq.errors import BmqError, ConfigurationError, Corrupt, FormatTooNew

__all__ = [
    "MORE_MEMORY",
    "BmqError",
    "CommitRace",
    "CommitRefused",
    "ConfigurationError",
    "Corrupt",
    "FormatTooNew",
    "JobStopped",
    "ProtocFailed",
    "TableBroken",
]


MORE_MEMORY: Final = (
    "give it more memory (SPARK_DRIVER_MEMORY=4g; on a cluster spark.driver.memory and spark.executor.memory), or take "
    "fewer records at once (--max-records-per-batch)"
)
"""The remedy where Spark's Java has too little."""


class CommitRace(BmqError):
    """Somebody else committed the version that was to be committed: read the table again and decide anew."""


class CommitRefused(BmqError):
    """A commit that would break what holds of every table: a file twice, a record twice, a gap that nobody named.
    Nothing was committed.
    """


class TableBroken(BmqError):
    """A table's log does not hold together: a version is missing, or is not what this program writes."""


class JobStopped(BmqError):
    """The job cannot go on without losing or repeating records; its place is kept."""


class ProtocFailed(BmqError):
    """protoc came to no verdict on a schema: it was killed, had no room or took too long. No record and no schema is to
    blame, and it passes.
    """
