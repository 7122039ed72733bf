"""What starting a process has in common, whatever its roles: the bucket is there, and what fails is told in one line."""

from bmq.errors import BmqError, Corrupt
from bmq.runtime.store_url import StoreKind, parse_store_url

FAILED = 1
MISCONFIGURED = 2


def make_bucket(url: str) -> None:
    """Makes the bucket of an S3-compatible server where it is missing. Blocks. Raises ConfigurationError, StoreUnusable."""
    parsed = parse_store_url(url)
    if parsed.kind is StoreKind.S3:
        from bmq.runtime.bucket import ensure_bucket  # a third of a second to import, and a folder needs none of it

        ensure_bucket(parsed)


def start_failure(error: BmqError) -> str:
    """The one line about a start that failed."""
    if isinstance(error, Corrupt):
        return f"{error}: it is not what was written: restore the object from a backup"
    return str(error)
