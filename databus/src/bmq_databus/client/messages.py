"""Messages as applications have them, and what became of each. Pure."""

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

MESSAGES_MAX: Final = 10_000
BODY_BYTES_MAX: Final = 16 << 20
"""A request has so many at most; more are sent in several."""
_NOTHING: Final = object()
HeaderValue = str | bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message. Its value is `value` (None: a tombstone) or what `json` is in JSON."""

    value: str | bytes | None = None
    json: Any = _NOTHING
    key: str | bytes | None = None
    headers: Mapping[str, HeaderValue] | Sequence[tuple[str, HeaderValue]] = ()
    timestamp_ms: int | None = None
    """Since 1970; None: when the sidecar gets it."""
    partition: int | None = None
    """None: by its key."""

    def line(self) -> bytes:
        """As a line of JSON that the sidecar takes. Raises ValueError where it has two values, TypeError or ValueError
        for what JSON has no word for.
        """
        written: dict[str, Any] = {}
        if self.json is not _NOTHING:
            if self.value is not None:
                raise ValueError("a message has value or json, not both")
            written["json"] = self.json
        elif isinstance(self.value, str):
            written["text"] = self.value
        elif self.value is not None:
            written["base64"] = _base64(self.value)
        if isinstance(self.key, bytes):
            written["keyBase64"] = _base64(self.key)
        elif self.key is not None:
            written["key"] = self.key
        if self.headers:
            pairs = self.headers.items() if isinstance(self.headers, Mapping) else self.headers
            written["headers"] = [_header(name, value) for name, value in pairs]
        if self.timestamp_ms is not None:
            written["timestamp"] = self.timestamp_ms
        if self.partition is not None:
            written["partition"] = self.partition
        return json.dumps(written, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of one message. `status` 200: the cluster has it, at `partition` and `offset`; 202: the sidecar has
    it; else `error` says why not.
    """

    status: int
    partition: int | None = None
    offset: int | None = None
    error: str | None = None

    @property
    def is_written(self) -> bool:
        return self.status in (200, 202)


def results_of(answer: Mapping[str, Any]) -> list[Result]:
    """Those in a sidecar's answer. What a later version says beside is passed over."""
    return [
        Result(status=one["status"], partition=one.get("partition"), offset=one.get("offset"), error=one.get("error"))
        for one in answer["results"]
    ]


def bodies_of(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    """In their order, as many together as one request takes; a line that is larger is alone."""
    body: list[bytes] = []
    size_bytes = 0
    for line in lines:
        if body and (len(body) >= MESSAGES_MAX or size_bytes + len(line) > BODY_BYTES_MAX):
            yield body
            body, size_bytes = [], 0
        body.append(line)
        size_bytes += len(line)
    if body:
        yield body


def _header(name: str, value: HeaderValue) -> dict[str, str]:
    if value is None:
        return {"name": name}
    return {"name": name, "base64": _base64(value)} if isinstance(value, bytes) else {"name": name, "text": value}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
