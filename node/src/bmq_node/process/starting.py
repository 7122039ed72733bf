"""What starting a process has in common, whatever its roles: the bucket is there, a folder is private, and what fails
is told in one line. Knows no service: the probe and commands over a store start so, too.
"""

import os
from typing import Final

from bmq.errors import BmqError, Corrupt
from bmq.runtime.store_url import StoreKind, parse_store_url

FAILED = 1
MISCONFIGURED = 2
_OF_OTHERS: Final = 0o077
"""What the process's group and everybody else may do."""


def make_bucket(url: str) -> None:
    """Makes the bucket of an S3-compatible server where it is missing. Blocks. Raises ConfigurationError,
    StoreUnusable.
    """
    parsed = parse_store_url(url)
    if parsed.kind is StoreKind.S3:
        from bmq.runtime.bucket import ensure_bucket  # a third of a second to import, and a folder needs none of it

        ensure_bucket(parsed)


def keep_private(url: str) -> int:
    """From now on this process creates files and folders for its own user alone, where it keeps a store in a folder:
    records are nobody else's.

    What is there already keeps its mode. Returns the umask that was. Raises ConfigurationError.
    """
    parsed = parse_store_url(url)
    before = os.umask(_OF_OTHERS)
    os.umask(before | _OF_OTHERS if parsed.kind is StoreKind.FILE and parsed.private else before)
    return before


def start_failure(error: BmqError) -> str:
    """The one line about a start that failed."""
    if isinstance(error, Corrupt):
        return f"{error}: it is not what was written: restore the object from a backup"
    return str(error)
