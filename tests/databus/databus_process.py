"""A started `bmq databus serve`, and what applications do with it."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from compat_server import BMQ
from scraping import scraped

ANSWER_S = 40
CHANNELS = """
apiVersion: bmq.io/v1alpha1
kind: Channel
metadata: {name: orders}
---
apiVersion: bmq.io/v1alpha1
kind: Channel
metadata: {name: clicks}
spec: {topic: clicks-raw, acknowledgement: accepted}
---
apiVersion: bmq.io/v1alpha1
kind: Channel
metadata: {name: closed}
spec: {enabled: false}
"""


class Databus:
    """One sidecar; `start` again after its end."""

    def __init__(
        self,
        servers: str,
        channels: str | None,
        folder: Path,
        *,
        unix: Path | None = None,
        control_plane: str = "",
        spools: bool = True,
        options: Sequence[str] = (),
    ) -> None:
        """`channels` None: those of `control_plane`, if there is one."""
        folder.mkdir(exist_ok=True)
        self._servers = servers
        self._folder = folder
        self._unix = unix
        self._options = list(options)
        self._channels = ["--control-plane", control_plane] if control_plane else []
        if channels is not None:
            file = folder / "channels.yaml"
            file.write_text(channels)
            self._channels = ["--channels", str(file)]
        self._spools = spools
        self.log = folder / "databus.log"
        self.spool = folder / "spool"
        self.process: subprocess.Popen[str] | None = None
        self.address = ""
        self.grpc_address = ""
        """Where it has `--grpc-listen`."""

    def start(self, *, listen: str = "127.0.0.1:0") -> None:
        """Returns when it listens."""
        command = [str(BMQ), "databus", "serve", "--bootstrap-servers", self._servers, *self._channels]
        command += ["--listen", listen, *self._options]
        if self._spools:
            command += ["--spool", str(self.spool)]
        if self._unix is not None:
            command += ["--unix", str(self._unix)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True, cwd=self._folder
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("databus listens on "), f"{line!r}\n{self.log.read_text()}"
        self.address = line.split()[-1]
        if "--grpc-listen" in self._options:
            self.grpc_address = self.process.stdout.readline().split()[-1]

    def kill9(self) -> None:
        """As a machine that fails, but for the disk."""
        assert self.process is not None
        self.process.kill()
        self._reap()

    def stop(self) -> int:
        """The clean end; its exit code."""
        if self.process is None:
            return 0
        self.process.terminate()
        return self._reap()

    def post(
        self,
        channel: str,
        body: bytes,
        *,
        media: str = "text/plain",
        query: str = "",
        headers: dict[str, str] | None = None,
    ) -> tuple[int, Any]:
        """Status and answer."""
        request = Request(
            f"{self.url(channel)}{query}",
            data=body,
            headers={"content-type": media, **(headers or {})},
        )
        try:
            with urlopen(request, timeout=ANSWER_S) as answer:
                return answer.status, json.load(answer)
        except HTTPError as error:
            return error.code, json.load(error)

    def post_many(self, channel: str, messages: Sequence[Any]) -> tuple[int, Any]:
        """As a JSON array."""
        return self.post(channel, json.dumps(messages).encode(), media="application/json")

    def url(self, channel: str) -> str:
        """Where the channel is written."""
        return f"http://{self.address}/v1/channels/{channel}/messages"

    def value(self, name: str, **labels: str) -> float:
        """The sum of the series with these labels."""
        with urlopen(f"http://{self.address}/metrics", timeout=ANSWER_S) as answer:
            series = list(scraped(answer.read().decode()))
        return sum(one.value for one in series if one.name == name and labels.items() <= one.labels.items())

    def _reap(self) -> int:
        assert self.process is not None
        process, self.process = self.process, None
        try:
            return process.wait(30)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait(10)
            assert process.stdout is not None
            process.stdout.close()
