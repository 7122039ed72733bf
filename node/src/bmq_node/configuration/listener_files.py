"""The addresses of listeners in a file, or in a folder of small files, which are read again while the node runs.

The address of a NodePort or a LoadBalancer is known only after the pod was started: something writes it into a
ConfigMap then, which is mounted here. What cannot be read while the node runs changes nothing: the addresses that were
told are still told.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import structlog

from bmq.errors import ConfigurationError
from bmq_node.configuration.listeners import addresses_told, lines_wanted, read_lines

READ_AGAIN_S: Final = 2.0
FILE_BYTES_MAX: Final = 1 << 20
"""What a ConfigMap can hold."""
OPTION: Final = "advertised_listeners_file"

_log = structlog.get_logger("bmq.listeners")


class ListenerFile:
    """The file, or folder of files, with the addresses of one node's `listeners`, read again while the node runs."""

    def __init__(self, path: Path, listeners: Mapping[str, str], *, host_name: str) -> None:
        self._path = path
        self._listeners = listeners
        self._host_name = host_name
        self._known: dict[str, str] = {}
        self._complaint = ""

    def read(self) -> dict[str, str]:
        """HOST:PORT by listener, as the file has them for this host. One that is not there yet has none. Raises
        ConfigurationError.
        """
        try:
            lines = self._lines()
            return addresses_told(self._listeners, lines, self._host_name)
        except FileNotFoundError:
            return {}
        except (OSError, UnicodeDecodeError, ValueError) as error:
            why = (error.strerror or "cannot be read").lower() if isinstance(error, OSError) else str(error)
            if isinstance(error, UnicodeDecodeError):
                why = "it is not text: write NAME=HOST:PORT a line"
            raise ConfigurationError(f"{OPTION} {self._path}: {why}") from None

    def start(self) -> dict[str, str]:
        """What there is to begin with. Raises ConfigurationError."""
        self._known = self.read()
        missing = [name for name in self._listeners if name not in self._known]
        if missing:
            _log.info("no address of these listeners yet", file=str(self._path), listeners=missing)
        return self._known

    async def watch(self, changed: Callable[[Mapping[str, str]], None]) -> None:
        """Calls `changed` with all that is known after each change, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(READ_AGAIN_S)
            try:
                found = await loop.run_in_executor(None, self._read_whole)
            except ConfigurationError as error:
                if str(error) != self._complaint:
                    _log.error("the addresses of listeners stay as they are", error=str(error))
                self._complaint = str(error)
                continue
            self._complaint = ""
            if found != self._known:
                _log.info("addresses of listeners changed", before=self._known, now=found)
                self._known = found
                changed(found)

    def _read_whole(self) -> dict[str, str]:
        if not self._path.exists() and self._known:
            raise ConfigurationError(f"{OPTION} {self._path}: it is gone: put it back")
        return self.read()

    def _lines(self) -> dict[str, str]:
        if not self._path.is_dir():
            return read_lines(_text(self._path))
        found = {}
        for key in lines_wanted(self._listeners, self._host_name):
            if (self._path / key).is_file():
                found[key] = _text(self._path / key).strip()
        return found


def _text(path: Path) -> str:
    with path.open("rb") as file:
        data = file.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise ValueError(f"it has more than {FILE_BYTES_MAX >> 20} MiB: write a line for each listener of each node")
    return data.decode()
