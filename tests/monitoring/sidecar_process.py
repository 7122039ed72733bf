"""A started sidecar that follows the channels of a cluster, what an application writes to it, and its metrics."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from compat_server import BMQ
from free_ports import free_port

CHANNELS = {
    "orders": {"topic": "of-sidecars"},
    "clicks": {"topic": "of-sidecars", "acknowledgement": "accepted", "spool": {"maxBytes": 16 << 20}},
}


class Sidecar:
    """`health` is the address of which it is scraped."""

    def __init__(self, servers: str, admin: str, *, folder: Path) -> None:
        for name, spec in CHANNELS.items():
            body = json.dumps({"name": name, "spec": spec}).encode()
            asked = Request(f"http://{admin}/v1/channels", data=body, headers={"content-type": "application/json"})
            urlopen(asked, timeout=30).close()
        folder.mkdir()
        self.health = f"127.0.0.1:{free_port()}"
        self.log = folder / "databus.log"
        command = [str(BMQ), "databus", "serve", "--bootstrap-servers", servers, "--listen", "127.0.0.1:0"]
        command += [
            "--health-listen",
            self.health,
            "--control-plane",
            f"http://{admin}",
            "--spool",
            str(folder / "spool"),
        ]
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                cwd=folder,
                env=dict(os.environ),
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("databus listens on "), f"{line!r}\n{self.log.read_text()}"
        self.address = line.split()[-1]

    @contextmanager
    def written_to(self) -> Iterator[None]:
        """Twenty messages a second to each channel, until the end."""
        stop = Event()
        threads = [Thread(target=self._write, args=(channel, stop)) for channel in CHANNELS]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    def _write(self, channel: str, stop: Event) -> None:
        url = f"http://{self.address}/v1/channels/{channel}/messages"
        while not stop.wait(0.05):
            try:
                urlopen(Request(url, data=b"x" * 100, headers={"content-type": "text/plain"}), timeout=60).close()
            except HTTPError as error:  # 404 until it has heard of the channels
                assert error.code in (404, 503), error

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        finally:
            self.process.kill()
            assert self.process.stdout is not None
            self.process.stdout.close()
