"""The admin REST API of a simulated cluster's nodes, as somebody on their machine uses it.

HTTP itself is left out: requests enter where a server hands them on.
"""

import asyncio
import json
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Protocol, TypeAlias

from bmq_controller.api.front import AdminFront
from bmq_sim.client import ConnectionLost
from bmq_sim.history import History
from bmq_sim.process import SimProcess

ASKED_S: Final = 45.0
BACKOFF_S: Final = 0.5
_DONE: Final = range(200, 300)
_AGAIN: Final = frozenset((408, 503, 504))


Admin: TypeAlias = tuple[SimProcess, AdminFront]


def exposition() -> bytes:
    """What `/metrics` says of a simulated node. Real metrics are those of this process, with its memory and all that
    ran in it: they have other bytes each time, which would take other times to arrive.
    """
    return b"# A simulated node tells nothing.\n" * 1_000


class Administered(Protocol):
    """One node, or a cluster."""

    @property
    def admins(self) -> Sequence[Admin]:
        """Nodes that serve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came. `document` is what the body says: JSON, or text."""

    status: int
    document: Any


class Rest:
    """One client. Each request goes to some node that serves."""

    def __init__(self, deployment: Administered, history: History, *, rng: Random) -> None:
        self._deployment = deployment
        self._history = history
        self._rng = rng

    async def once(self, method: str, path: str, body: object = None) -> Answer:
        """One try. Raises ConnectionLost."""
        nodes = self._deployment.admins
        if not nodes:
            raise ConnectionLost("no node serves")
        process, front = self._rng.choice(nodes)
        task = process.start(_ask(front, method, path, body), name=f"{method} {path}")
        await asyncio.wait((task,), timeout=ASKED_S)
        if not task.done() or task.cancelled():
            raise ConnectionLost(f"{method} {path}: no answer")
        return task.result()

    async def until_told(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        fine: tuple[int, ...] = (),
        writes: Sequence[tuple[str, str]] = (),
    ) -> Answer:
        """Asks until somebody says what is: success, or one of `fine`. Anything but "not now" beside these is one that
        no correct server gives.

        `writes`: what (register, value) success means.
        """
        while True:
            tries = [self._history.write(register, value) for register, value in writes]
            try:
                answer = await self.once(method, path, body)
            except ConnectionLost:
                pass
            else:
                if answer.status in _DONE or answer.status in fine:
                    turn = self._history.turn()
                    for one in tries:
                        one.acknowledged = turn
                    return answer
                if answer.status not in _AGAIN:
                    self._history.refused.append(f"{method} {path} was told {answer.status}: {answer.document}")
                    return answer
            await asyncio.sleep(BACKOFF_S * (0.5 + self._rng.random()))


async def _ask(front: AdminFront, method: str, path: str, body: object) -> Answer:
    data = b"" if body is None else json.dumps(body).encode()
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": headers,
        "client": ("127.0.0.1", 1),
    }
    sent: list[MutableMapping[str, Any]] = []

    asked = [{"type": "http.request", "body": data, "more_body": False}]

    async def receive() -> MutableMapping[str, Any]:
        return asked.pop() if asked else await asyncio.get_running_loop().create_future()

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    await front(scope, receive, send)
    told = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
    text = b"".join(message.get("body", b"") for message in sent[1:])
    document = json.loads(text) if text and "json" in told.get("content-type", "") else text.decode()
    return Answer(status=sent[0]["status"], document=document)
