"""The clients of a run, each a process of its own: started, told to come to their end, and waited for. Their histories
are files.
"""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from compat_server import tool, tools_folder

HERE: Final = Path(__file__).parent
ANSWER_S: Final = 360.0
"""How long a client may take to its end: a producer waits for the reports of all that it sent."""


class Client:
    """One process, which ends after its standard input, and then says one line of JSON."""

    def __init__(self, name: str, command: list[str], *, folder: Path) -> None:
        self.name = name
        self.out = folder / f"{name}.rows"
        self._command = command
        self._log = folder / f"{name}.log"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])},
                start_new_session=True,
            )

    def tell(self, request: Mapping[str, Any] | None = None) -> None:
        """One line, and the end of its standard input. Without a request an empty line."""
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write((json.dumps(request) if request is not None else "").encode() + b"\n")
        self._process.stdin.close()

    async def finish(self) -> dict[str, Any]:
        """What it says at its end. Raises AssertionError with the end of what it printed."""
        assert self._process is not None and self._process.stdout is not None
        async with asyncio.timeout(ANSWER_S):
            line = await self._process.stdout.read()
            code = await self._process.wait()
        assert code == 0, f"{self.name} ended with {code}:\n{self._log.read_text(errors='replace')[-4000:]}"
        answer: dict[str, Any] = json.loads(line) if line.strip() else {}
        return answer

    async def close(self) -> None:
        """Ends it at once, where it still runs."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


def python_client(name: str, script: str, *arguments: str, folder: Path, **options: object) -> Client:
    """One of the scripts beside this one."""
    command = [sys.executable, str(HERE / script), *arguments]
    for option, value in {**options, "out": folder / f"{name}.rows"}.items():
        command += [f"--{option.replace('_', '-')}", str(value)]
    return Client(name, command, folder=folder)


def java_writer(
    name: str,
    *,
    servers: str,
    topic: str,
    partitions: int,
    producer: int,
    per_second: int,
    idempotent: bool,
    folder: Path,
) -> Client:
    """The Java producer (tests/compat/java-client/Writer.java)."""
    tool("get", "java-client")
    tools = tools_folder()
    command = [str(tools / "java-client" / "java"), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m"]
    command += ["-Dorg.apache.logging.log4j.level=WARN", "-cp", f"{tools}/java-client:{tools}/kafka/*", "Writer"]
    command += [
        servers,
        topic,
        str(partitions),
        str(producer),
        str(per_second),
        "idempotent" if idempotent else "plain",
    ]
    return Client(name, [*command, str(folder / f"{name}.rows")], folder=folder)
