"""Requests without a server: a body in parts, and what is answered."""

import asyncio
from collections.abc import Mapping, MutableMapping
from typing import Any

from bmq_databus.http.incoming import Incoming, Receive, Streaming


def sending(*parts: bytes | None) -> Receive:
    """None: the client leaves."""
    left = list(parts)

    async def receive() -> Mapping[str, Any]:
        part = left.pop(0)
        if part is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": part, "more_body": bool(left)}

    return receive


def incoming(receive: Receive, **headers: str) -> Incoming:
    """A request with that body; _ in names of headers for -."""
    named = {"transfer-encoding": "chunked", **{name.replace("_", "-"): value for name, value in headers.items()}}
    scope = {"headers": [(name.encode(), value.encode()) for name, value in named.items()], "query_string": b""}
    return Incoming(scope, receive)


class Connection:
    """What a request came by."""

    def __init__(self) -> None:
        self.broken = ""
        self.is_aborted = False
        self.takes_more = self.has_part = self.has_rest = False
        self.is_held = self.waits_for_body = False
        self.stream: Streaming | None = None

    def hold_answer(self) -> None:
        self.is_held = True

    def let_answer_go(self) -> None:
        self.is_held = False

    def abort(self) -> None:
        self.is_aborted = True


class Answer:
    """What was sent; where `reads` is not set, the one who gets it reads nothing."""

    def __init__(self) -> None:
        self.status = 0
        self.body = b""
        self.is_whole = False
        self.reads = asyncio.Event()
        self.reads.set()

    async def send(self, event: MutableMapping[str, Any]) -> None:
        await self.reads.wait()
        if event["type"] == "http.response.start":
            self.status = event["status"]
            return
        self.body += event["body"]
        self.is_whole = not event.get("more_body", False)
