"""A resource as the API server tells of it: kubectl is started once for all its changes, and not for each look."""

import json
import select
import subprocess
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import IO, Any

LOOK_S = 1.0
"""How long one look waits for a change."""
SILENT_S = 15.0
"""A watch that has told nothing for so long is begun anew: on a busy machine one was seen that never told anything."""
TEMPLATE = '{.metadata.generation}{" "}{.status.conditions}{"\\n"}'


class NotShown(Exception):
    """Why kubectl ended."""


class Conditions:
    """The conditions of one resource, followed by the command `line`, which is begun anew whenever it has ended."""

    def __init__(self, line: Sequence[str], environment: Mapping[str, str]) -> None:
        self._line = [*line, "--watch", f"--output=jsonpath={TEMPLATE}"]
        self._environment = environment
        self._kubectl: subprocess.Popen[bytes] | None = None
        self._arrived = b""
        self._heard_s = 0.0

    def next(self) -> tuple[int, list[dict[str, Any]]] | None:
        """The resource's generation and its conditions at the next change, or now where it was not looked at before;
        None where there is none within LOOK_S. Raises NotShown.
        """
        if self._kubectl is not None and monotonic() > self._heard_s + SILENT_S:
            self.end()
        if self._kubectl is None:
            self._heard_s = monotonic()
            self._kubectl = subprocess.Popen(
                self._line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self._environment
            )
        while b"\n" not in self._arrived:
            assert self._kubectl.stdout is not None
            if not select.select([self._kubectl.stdout], [], [], LOOK_S)[0]:
                return None
            if not (read := _some(self._kubectl.stdout)):
                raise NotShown(self.end())
            self._arrived += read
            self._heard_s = monotonic()
        told, _, self._arrived = self._arrived.partition(b"\n")
        generation, _, conditions = told.decode().partition(" ")
        return int(generation or 0), json.loads(conditions or "[]")

    def end(self) -> str:
        """Ends the command. Returns what it complained of."""
        kubectl, self._kubectl, self._arrived = self._kubectl, None, b""
        if kubectl is None:
            return ""
        kubectl.terminate()
        return kubectl.communicate()[1].decode(errors="replace").strip()


def _some(stream: IO[bytes]) -> bytes:
    return stream.read1(65_536)  # type: ignore[attr-defined,no-any-return]
