"""An answer as it goes out: in parts, each once there is room for it at its client, within a time."""

import asyncio
from typing import Any, Final

import structlog

from bmq_databus.http.incoming import ClientGone, Incoming, Send

PART_BYTES: Final = 32 << 10
TAKEN_WITHIN_S: Final = 30.0
"""Who takes nothing of an answer for so long does not read."""

log = structlog.get_logger()


class Outgoing:
    """One request's. Whoever does not take it is cut: others wait for the room that it has."""

    def __init__(self, incoming: Incoming, send: Send) -> None:
        self._incoming = incoming
        self._send = send

    async def begin(self, head: dict[str, Any]) -> None:
        """Its status and headers. Raises ClientGone."""
        await self._sent(head)

    async def go_on(self, data: bytes) -> None:
        """Something of its body. Raises ClientGone."""
        for first in range(0, len(data), PART_BYTES):
            await self._sent(_body(data[first : first + PART_BYTES], more_body=True))

    async def whole(self, head: dict[str, Any], data: bytes) -> None:
        """All of it. Raises ClientGone."""
        connection = self._incoming.connection
        if connection is None or len(data) > PART_BYTES or not connection.takes_more:
            await self.begin(head)
            await self.end(data)
            return
        connection.hold_answer()
        try:
            await self._send(head)
            await self._send(_body(data, more_body=False))
        finally:
            connection.let_answer_go()

    async def end(self, data: bytes = b"") -> None:
        """The last of its body. Raises ClientGone."""
        last = max(0, (len(data) - 1) // PART_BYTES * PART_BYTES)
        await self.go_on(data[:last])
        await self._sent(_body(data[last:], more_body=False))

    async def _sent(self, event: dict[str, Any]) -> None:
        if self._incoming.connection is not None and self._incoming.connection.takes_more:
            await self._send(event)
            return
        try:
            async with asyncio.timeout(TAKEN_WITHIN_S):
                await self._send(event)
        except TimeoutError:
            path = self._incoming.scope.get("path", "")[:200]
            log.warning("a connection is cut: its client takes no answer", path=path, within_s=TAKEN_WITHIN_S)
            if self._incoming.connection is not None:
                self._incoming.connection.abort()
                await asyncio.sleep(0)
            raise ClientGone(f"the client took nothing of its answer for {TAKEN_WITHIN_S:g} s") from None


def _body(data: bytes, *, more_body: bool) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more_body}
