"""Which keys every real store takes. Keys are bmq's own, so one that does not fit is a bug and raises ValueError.

The set is what a path on a POSIX file system, a key of S3, GCS and Azure, and a URL hold without escapes, so that a
key, its path and its order are the same everywhere. A segment does not begin with a dot (`..`, and the folder store's
own files).
"""

import re
from typing import Final

KEY_LENGTH_MAX: Final = 1024
"""S3's limit."""
_SEGMENT: Final = r"[A-Za-z0-9_=+@~-][A-Za-z0-9_=+@~.-]{0,254}"
_KEY: Final = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*")
_FOLDER: Final = re.compile(rf"(?:{_SEGMENT}/)*")


def checked_key(key: str) -> str:
    """The key itself. Raises ValueError where a store could not hold it under that name."""
    if len(key) > KEY_LENGTH_MAX or _KEY.fullmatch(key) is None:
        raise ValueError(f"not an object key: {key!r}")
    return key


def folder_of_prefix(prefix: str) -> str:
    """The part of a listing's prefix up to its last slash, with it: `wal/00` → `wal/`. Raises ValueError."""
    folder = prefix[: prefix.rfind("/") + 1]
    if len(prefix) > KEY_LENGTH_MAX or _FOLDER.fullmatch(folder) is None:
        raise ValueError(f"not a prefix of object keys: {prefix!r}")
    return folder
