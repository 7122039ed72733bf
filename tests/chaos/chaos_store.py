"""The store under a cluster: a real MinIO, or an emulator of a cloud. It can stand still, die, and be started again at
its port.

versitygw keeps what it acknowledged over a kill. Azurite writes its index now and then and fake-gcs nothing at all, so
that a kill of these would lose what no store may lose: they stand still instead, and go on where they would be started.
"""

import os
import signal
from pathlib import Path
from typing import Final

from compat_emulator import EMULATORS, Emulator
from compat_server import Minio, tool

STORES: Final = ("minio", *EMULATORS)
_KEPT_OVER_A_KILL: Final = ("minio", "versitygw")


class Store:
    """Runs from its making to `stop`."""

    def __init__(self, name: str, folder: Path) -> None:
        self._folder = folder
        self._name = name
        self._server: Minio | Emulator = Minio(folder) if name == "minio" else Emulator(name, folder)
        self.port = self._server.port
        self.environment = self._server.environment

    def url(self, port: int) -> str:
        """Through a relay at this port, or at its own."""
        return self._server.store_url("chaos").replace(f"127.0.0.1:{self.port}", f"127.0.0.1:{port}")

    def pause(self, paused: bool) -> None:
        """Stands still, or goes on."""
        try:
            os.kill(self._pid, signal.SIGSTOP if paused else signal.SIGCONT)
        except ProcessLookupError:
            return

    def kill(self) -> None:
        if self._name in _KEPT_OVER_A_KILL:
            os.kill(self._pid, signal.SIGKILL)
        else:
            self.pause(True)

    def start(self) -> None:
        """After a kill: over the same data, at the same port."""
        if self._name not in _KEPT_OVER_A_KILL:
            self.pause(False)
        elif isinstance(self._server, Emulator):
            self._server.stop()
            self._server = Emulator(self._name, self._folder, port=self.port)
        else:
            tool("minio", "start", str(self._folder), str(self.port))

    def stop(self) -> None:
        self._server.stop()

    @property
    def _pid(self) -> int:
        return self._server.pid if isinstance(self._server, Emulator) else int((self._folder / "pid").read_text())
