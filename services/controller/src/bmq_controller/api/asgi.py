"""Between ASGI and requests as values: what a server gives becomes an AdminRequest, and an application's answer to one
an AdminReply.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, TypeAlias

from bmq.fairness.fair_room import FairRoom
from bmq.roles.admin import AdminReply, AdminRequest

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
"""An ASGI 3 application."""

BODY_BYTES_MAX: Final = 1 << 20
"""The body of a request."""
TARGET_BYTES_MAX: Final = 8 << 10
"""What is asked for: path and query, as they are sent. A token of a page and a name of a KiB have room, each of their
characters as %XX."""
PARAMETERS_MAX: Final = 100
"""Parameters in a query, which become objects before a page says that it knows none of them."""
PART_BYTES: Final = 64 << 10
"""How many bytes of an answer are handed to the server at a time."""
BODY_WITHIN_S: Final = 10.0
"""How long a body may take to arrive."""
BODIES_BYTES_MAX: Final = 32 << 20
"""How many bytes all bodies that are arriving may have, of all requests of a process together; an address has no more
of it than is free."""
ADDRESS: Final = "x-forwarded-for"
"""The header with the client's address, which also goes with a request that is handed on; a client's own is left
out."""


async def call(application: Application, request: AdminRequest) -> AdminReply:
    """What an ASGI application answers."""
    sent = False
    status, headers, parts = 500, {}, []

    async def receive() -> MutableMapping[str, Any]:
        nonlocal sent
        if sent:
            return {"type": "http.disconnect"}
        sent = True
        return {"type": "http.request", "body": request.body, "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        nonlocal status, headers
        if message["type"] == "http.response.start":
            status = message["status"]
            headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in message["headers"]}
        else:
            parts.append(message.get("body", b""))

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": "http",
        "path": request.path,
        "raw_path": request.path.encode(),
        "query_string": request.query.encode("latin-1"),
        "root_path": "",
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in request.headers.items()],
        "client": None,
        "server": None,
    }
    await application(scope, receive, send)
    return AdminReply(status=status, headers=headers, body=b"".join(parts))


class NoRoom(Exception):
    """Bodies of others use up the memory for bodies that are arriving."""


async def body_of(receive: Receive, room: FairRoom, *, address: str) -> bytes | None:
    """A request's body; None where it is too large. `address` sends it. Raises TimeoutError where it does not come,
    NoRoom.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_WITHIN_S):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    return bytes(body)
                part = message.get("body", b"")
                if not room.has(len(part), address=address):
                    raise NoRoom("the bodies of other requests that are arriving use up the memory for them")
                room.take(len(part), address=address)
                body += part
                if len(body) > BODY_BYTES_MAX:
                    return None
                if not message.get("more_body", False):
                    return bytes(body)
    finally:
        room.give_back(len(body), address=address)


async def say(send: Send, reply: AdminReply, *, with_body: bool) -> None:
    """The whole answer."""
    headers = {**reply.headers, "content-length": str(len(reply.body))}
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": reply.status, "headers": encoded})
    body = reply.body if with_body else b""
    # each waits until the one before is taken: a server copies what it is given
    for first in range(PART_BYTES, len(body) + PART_BYTES, PART_BYTES):
        part = body if len(body) <= PART_BYTES else body[first - PART_BYTES : first]
        await send({"type": "http.response.body", "body": part, "more_body": first < len(body)})
    if not body:
        await send({"type": "http.response.body", "body": b""})
