"""The id of the spool that a folder has: random bytes that the frames which it writes end with. Who writes messages
does not know it, so that nothing within a message is taken for a frame where the disk has lost one's head. Blocking.
"""

from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog

from bmq.runtime.file_io import sync_file, sync_folder

ID_FILE: Final = "id"
ID_BYTES: Final = 16
_MAKING: Final = "id.making"
FILES: Final = (ID_FILE, _MAKING)

log = structlog.get_logger()


def id_in(folder: Path) -> bytes:
    """Empty: it has none. Raises OSError."""
    try:
        found = (folder / ID_FILE).read_bytes()
    except FileNotFoundError:
        return b""
    return found if len(found) == ID_BYTES else b""


def id_made(folder: Path, new: bytes) -> bytes:
    """The folder's, which is `new` where it had none; empty where the disk does not take it: messages do not depend on
    it.
    """
    making = folder / _MAKING
    try:
        if found := id_in(folder):
            return found
        with making.open("wb") as file:
            file.write(new)
            file.flush()
            sync_file(file.fileno())
        making.replace(folder / ID_FILE)
        sync_folder(folder)
    except OSError as error:
        log.warning("spool goes on without an id", folder=str(folder), why=error.strerror or str(error))
        with suppress(OSError):
            making.unlink(missing_ok=True)
        return b""
    return new
