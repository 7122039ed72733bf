"""The last known configuration on disk: a file that is replaced as a whole (docs/formats/known-channels.md)."""

import os
from pathlib import Path
from typing import Final

import msgspec
import structlog

from bmq.runtime.file_io import REMEDIES, sync_file, sync_folder, write_all
from bmq_databus.control_plane.configuration import Configuration, Declared
from bmq_databus.errors import BadConfiguration

NAME: Final = "known-channels.json"
FORMAT: Final = 2
"""1 said of no channel when it was made: all are asked for again."""
FILE_BYTES_MAX: Final = 256 << 20

log = structlog.get_logger()


class _File(msgspec.Struct, kw_only=True):
    format: int
    version: str
    confirmed_ms: int = 0
    channels: list[Declared]


class KnownFile:
    """That of a folder, which is made where it is missing."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME

    def read(self) -> tuple[Configuration, int] | None:
        """With when it was confirmed last, in ms since 1970; None: there is none. Of what a later version wrote, what
        this one knows. Blocking. Raises BadConfiguration.
        """
        try:
            with self.path.open("rb") as file:
                data = file.read(FILE_BYTES_MAX + 1)
            found = msgspec.json.decode(data, type=_File)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise BadConfiguration(
                f"{self.path} cannot be used: {why}: channels are known once the control plane answers"
            ) from error
        if found.format > FORMAT:
            log.warning("a later version wrote the last known channels", file=str(self.path), format=found.format)
        configuration = Configuration(
            version=found.version if found.format > 1 else "",
            specs={one.name: one.spec for one in found.channels},
            created_ms={one.name: one.created_ms for one in found.channels if one.created_ms},
        )
        return configuration, found.confirmed_ms

    def write(self, configuration: Configuration, *, confirmed_ms: int) -> None:
        """Durable when it returns. Blocking. Raises BadConfiguration: the file is what it was."""
        found = _File(
            format=FORMAT,
            version=configuration.version,
            confirmed_ms=confirmed_ms,
            channels=[
                Declared(name, dict(spec), configuration.created_ms.get(name, 0))
                for name, spec in configuration.specs.items()
            ],
        )
        new = self.path.with_suffix(".new")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                write_all(fd, [msgspec.json.encode(found)])
                sync_file(fd)
            finally:
                os.close(fd)
            new.replace(self.path)
            sync_folder(self.path.parent)
        except OSError as error:
            remedy = REMEDIES.get(error.errno or 0, "name another folder with --state")
            raise BadConfiguration(f"{self.path} cannot be written: {error.strerror or error}: {remedy}") from error
