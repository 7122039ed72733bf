"""A request as it comes in: its headers, and its body part by part, each within a time."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final, Protocol

from bmq_databus.errors import DatabusError

STALL_S: Final = 10.0
"""A body of which nothing comes for so long is given up: others wait for the room that it has."""
PASSED_OVER_BYTES_MAX: Final = 64 << 20
PASSED_OVER_WITHIN_S: Final = 5.0
"""How much of a body is read, and for how long, after an answer that did not wait for it: who sends all of it before
they look for the answer would find a broken connection instead."""
CONNECTION: Final = "bmq.connection"
"""The extension of a scope that has its connection."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class BadBody(DatabusError):
    """It is not what its headers say."""


class ClientGone(DatabusError):
    """The client left before all of its body was there."""


class TooSlow(DatabusError):
    """The client stalls within its body."""


class Streaming(Protocol):
    """A stream, as far as its connection asks."""

    @property
    def is_unanswered(self) -> bool:
        """Whether it has messages whose results its client does not have."""


class Connected(Protocol):
    """What a request came by."""

    broken: str
    """Why nothing more of it is understood; empty: it is."""
    waits_for_body: bool
    """Set while whoever reads a body waits for more of it."""
    stream: Streaming | None
    """Set while a stream is under way."""

    @property
    def takes_more(self) -> bool:
        """Whether its client has room for more of an answer."""

    @property
    def has_part(self) -> bool:
        """Whether more of a body, or its end, is there: nobody waits for it."""

    @property
    def has_rest(self) -> bool:
        """Whether all that is left of a body is there."""

    def hold_answer(self) -> None:
        """What is written of it from now on goes out together; nobody may wait meanwhile."""

    def let_answer_go(self) -> None:
        """All of it is written."""

    def abort(self) -> None:
        """Ends it at once, whatever is under way."""


class Incoming:
    """One request. One reads its body at a time."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope = scope
        self._receive = receive
        self._timeout: asyncio.Timeout | None = None
        self._is_interrupted = False
        self._is_begun = False
        self.headers: dict[str, str] = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        """The last one of each name."""
        self.connection: Connected | None = scope.get("extensions", {}).get(CONNECTION)
        self.is_over = not ("transfer-encoding" in self.headers or self.headers.get("content-length", "0") != "0")
        """Whether there is no more of its body."""

    def values(self, name: str) -> list[str]:
        """All headers of that name."""
        return [value.decode("latin-1") for key, value in self.scope["headers"] if key == name.encode()]

    async def part(self, *, stall_s: float) -> bytes | None:
        """What came of the body since the last one; None: it is over, or an `interrupt` ended it. Raises ClientGone,
        TooSlow, BadBody.
        """
        if self.is_over or self._is_interrupted:
            return None
        self._is_begun = True
        if self.connection is not None and self.connection.has_part:
            event = await self._receive()
        else:
            try:
                self._waits(True)
                async with asyncio.timeout(stall_s) as self._timeout:
                    event = await self._receive()
            except TimeoutError:
                if self._is_interrupted:
                    return None
                raise TooSlow(f"nothing more of the body came for {stall_s:g} s") from None
            finally:
                self._waits(False)
                self._timeout = None
        if event["type"] == "http.disconnect":
            self.is_over = True
            raise ClientGone("the client left within its body")
        self.is_over = not event.get("more_body", False)
        if self.is_over and self.connection is not None and self.connection.broken:
            raise BadBody(f"the body is no HTTP: {self.connection.broken}")
        data: bytes = event.get("body", b"")
        return data

    @property
    def has_rest(self) -> bool:
        """Whether all that is left of its body is there, as far as is known: nobody waits for it."""
        return self.is_over or (self.connection is not None and self.connection.has_rest)

    def interrupt(self) -> None:
        """Nothing more of the body is waited for."""
        self._is_interrupted = True
        if self._timeout is not None:
            self._timeout.reschedule(asyncio.get_running_loop().time())

    def _waits(self, does: bool) -> None:
        if self.connection is not None:
            self.connection.waits_for_body = does

    async def pass_over(self) -> None:
        """Reads what its client still sends of the body, and keeps nothing of it. Who waits to be told to go on is
        not.
        """
        if self.headers.get("expect", "").lower() == "100-continue" and not self._is_begun:
            return
        self._is_interrupted = False
        size_bytes = 0
        try:
            async with asyncio.timeout(PASSED_OVER_WITHIN_S):
                while size_bytes <= PASSED_OVER_BYTES_MAX:
                    data = await self.part(stall_s=PASSED_OVER_WITHIN_S)
                    if data is None:
                        break
                    size_bytes += len(data)
        except (TimeoutError, DatabusError):
            pass
