"""One request to a sidecar, however often it is sent: with a key of its own, so that it is written once. Pure."""

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from bmq_databus.client.errors import Refused, Unreachable
from bmq_databus.client.messages import Result, results_of

DEFAULT_URL: Final = "http://127.0.0.1:8600"
ANSWERED_WITHIN_S: Final = 75.0
"""A sidecar waits 30 s for room and 30 s for the cluster."""
PATIENCE_S: Final = 120.0
RETRY_FIRST_S: Final = 0.1
RETRY_MAX_S: Final = 5.0
AGAIN: Final = frozenset({408, 409, 429, 502, 503, 504})
"""Nothing of it was looked at, or an earlier copy is under way."""


def _new_key() -> str:
    return str(uuid.uuid4())


@dataclass(slots=True, kw_only=True)
class WriteRequest:
    """Some messages to one channel. Its `delays` grow from one try to the next."""

    channel: str
    lines: Sequence[bytes]
    token: str | None = None
    key: str = field(default_factory=_new_key)
    last: str = "no answer came"
    _delay_s: float = RETRY_FIRST_S

    @property
    def path(self) -> str:
        return f"/v1/channels/{quote(self.channel, safe='')}/messages"

    @property
    def headers(self) -> dict[str, str]:
        said = {"content-type": "application/x-ndjson", "idempotency-key": f'"{self.key}"'}
        return said if self.token is None else {**said, "authorization": f"Bearer {self.token}"}

    @property
    def body(self) -> bytes:
        return b"".join(self.lines)

    def results(self, status: int, body: bytes) -> list[Result] | None:
        """Those in an answer; None: try again. Raises Refused."""
        answer = _decoded(body)
        if "results" in answer:
            found = results_of(answer)
            if len(found) == len(self.lines):
                return found
            raise Refused(status, f"{len(found)} results for {len(self.lines)} messages: is that a sidecar of bmq's?")
        why = str(answer.get("error", body[:200].decode(errors="replace")))
        if status not in AGAIN:
            raise Refused(status, why)
        self.last = f"{status}: {why}"
        return None

    def delay_s(self, *, until_s: float, now_s: float, retry_after: str | None = None) -> float:
        """How long to wait before the next try. Raises Unreachable where there is no time for one."""
        delay_s = self._delay_s
        if retry_after is not None and retry_after.isdecimal():
            delay_s = max(delay_s, float(retry_after[:6]))
        if now_s + delay_s >= until_s:
            raise Unreachable(
                f"channel {self.channel}: {self.last}: is the sidecar running, and does it reach its cluster?"
            )
        self._delay_s = min(2 * self._delay_s, RETRY_MAX_S)
        return delay_s


def _decoded(body: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}
