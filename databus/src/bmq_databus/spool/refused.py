"""Messages that were accepted and that the cluster takes never: a line of JSON for each, which people can read."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from bmq.runtime.file_io import sync_file, write_all
from bmq_databus.spool.frames import Spooled

FILE: Final = "refused.jsonl"


class Refused(msgspec.Struct, frozen=True):
    """Bytes are base64 in the file."""

    number: int
    why: str
    message: Spooled


_line: Final = msgspec.json.Encoder().encode


def keep_refused(folder: Path, refused: Iterable[Refused]) -> None:
    """Durable when it returns. Blocking. Raises OSError."""
    fd = os.open(folder / FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    before_bytes = os.fstat(fd).st_size
    try:
        write_all(fd, [part for one in refused for part in (_line(one), b"\n")])
        sync_file(fd)
    except OSError:
        os.ftruncate(fd, before_bytes)  # or what is written next would be of one line with it
        raise
    finally:
        os.close(fd)
