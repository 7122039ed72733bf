"""The last known configuration on disk: a file that is replaced as a whole (docs/formats/known-channels.md)."""

import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import structlog

from bmq.runtime.file_io import REMEDIES, sync_file, sync_folder, write_all
from bmq_databus.control_plane.answers import ANSWER_BYTES_MAX, VERSION_CHARS_MAX, Declared, read_as
from bmq_databus.control_plane.configuration import Configuration, configured
from bmq_databus.errors import BadConfiguration

NAME: Final = "known-channels.json"
FORMAT: Final = 2
_WITH_AGES: Final = 2
"""1 said of no channel when it was made: all are asked for again."""
ASIDE: Final = "known-channels.aside"
FILE_BYTES_MAX: Final = ANSWER_BYTES_MAX + (16 << 20)
"""All that is kept of a control plane, and what stands around it in the file."""
_UNTIL: Final = "channels are known once the control plane answers"
_TOGETHER: Final = 500
"""So many channels are made JSON at a time."""

log = structlog.get_logger()


class _Head(msgspec.Struct, kw_only=True):
    format: int
    version: str
    confirmed_ms: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)] = 0


class _File(_Head, kw_only=True):
    channels: list[Declared]


class KnownFile:
    """That of a folder, which is made where it is missing."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME

    def read(self) -> tuple[Configuration, int] | None:
        """With when it was confirmed last, in ms since 1970; None: there is none. Of what a later version wrote, what
        this one knows. What cannot be used, or is beyond bounds, is set aside. Blocking. Raises BadConfiguration.
        """
        try:
            data = self._bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise BadConfiguration(f"{self.path} cannot be used: {error.strerror or error}: {_UNTIL}") from error
        try:
            if data is None:
                raise BadConfiguration(f"it has more than {FILE_BYTES_MAX >> 20} MiB")
            found = read_as(_File, data)
            configuration = configured(found.version, found.channels)
        except BadConfiguration as error:
            raise BadConfiguration(f"{self.path} cannot be used: {error}: {self._set_aside()}; {_UNTIL}") from error
        if found.format > FORMAT:
            log.warning("a later version wrote the last known channels", file=str(self.path), format=found.format)
        if found.format < _WITH_AGES or len(found.version) > VERSION_CHARS_MAX or configuration.beyond:
            configuration = replace(configuration, version="")
        return configuration, found.confirmed_ms

    def write(self, configuration: Configuration, *, confirmed_ms: int) -> None:
        """Durable when it returns. Channels that say more than is read are not in it, and all are asked for again where
        it is read. Blocking. Raises BadConfiguration: the file is what it was.
        """
        new = self.path.with_suffix(".new")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                for piece in _pieces(configuration, confirmed_ms=confirmed_ms):
                    write_all(fd, [piece])
                sync_file(fd)
            finally:
                os.close(fd)
            new.replace(self.path)
            sync_folder(self.path.parent)
        except OSError as error:
            remedy = REMEDIES.get(error.errno or 0, "name another folder with --state")
            raise BadConfiguration(f"{self.path} cannot be written: {error.strerror or error}: {remedy}") from error

    def _bytes(self) -> bytes | None:
        """None: more than are read. Raises OSError."""
        with self.path.open("rb") as file:
            if os.fstat(file.fileno()).st_size > FILE_BYTES_MAX:
                return None
            return file.read(FILE_BYTES_MAX)

    def _set_aside(self) -> str:
        """So that the next start does not read it again. What became of it."""
        aside = self.path.with_name(ASIDE)
        try:
            self.path.replace(aside)
        except OSError as error:
            return f"it stays there, as it cannot be renamed: {error.strerror or error}"
        return f"it is {aside} now"


def _pieces(configuration: Configuration, *, confirmed_ms: int) -> Iterator[bytes]:
    """The file's, so that no thread waits for all of it."""
    version = "" if configuration.beyond else configuration.version
    head = msgspec.json.encode(_Head(format=FORMAT, version=version, confirmed_ms=confirmed_ms))
    yield head.removesuffix(b"}") + b',"channels":['
    names = iter(configuration.specs)
    is_first = True
    while some := [*islice(names, _TOGETHER)]:
        channels = [_declared(configuration, name) for name in some]
        yield (b"" if is_first else b",") + msgspec.json.encode(channels)[1:-1]
        is_first = False
    yield b"]}"


def _declared(configuration: Configuration, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "spec": msgspec.Raw(configuration.specs[name]),
        "created_ms": configuration.created_ms.get(name, 0),
    }
