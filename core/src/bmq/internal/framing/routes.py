"""How a server answers one call: what starts it, and how its result travels. The tables are made by owner_handlers and
controller_handlers.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from typing_extensions import Buffer

from bmq.internal.framing.packing import Packed, Pieces
from bmq.internal.framing.refusals import Refusals

T = TypeVar("T")
R = TypeVar("R")


class Closes(Protocol):
    """What a route keeps for a connection."""

    def close(self) -> None:
        """The connection is gone."""


class Kept:
    """A connection's own: what a route keeps for it from one call to the next, and closes with it."""

    __slots__ = ("began", "ending", "state")

    def __init__(self, began: Callable[["asyncio.Task[Any]"], None]) -> None:
        self.state: Closes | None = None
        self.began = began
        """To be told of each task that works for the connection: the server awaits it when it stops."""
        self.ending: set[asyncio.Future[Any]] = set()
        """Work that ends with its caller, though other calls of its kind are carried through."""

    def ends(self, work: "asyncio.Future[Any]") -> None:
        """This one does."""
        self.ending.add(work)
        work.add_done_callback(self.ending.discard)

    def close(self) -> None:
        """The connection is gone."""
        state, self.state = self.state, None
        if state is not None:
            state.close()


class Incoming(NamedTuple):
    """A call as it came. `refusals` and `kept` are those of its connection."""

    correlation_id: int
    header: memoryview
    attachments: memoryview
    refusals: Refusals
    kept: Kept


def _nothing(*_: object) -> None:
    pass


class Outgoing(NamedTuple):
    """A reply: record batches travel as attachments, one after the other.

    `over` is called once: the reply has gone out, or nobody wants it any more.
    """

    header: bytes | Pieces
    attachments: Sequence[Buffer] = ()
    over: Callable[[], None] = _nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Route(Generic[T]):
    """`begin` starts the work before it returns (so calls of a connection start in their order). Raises BmqError, or
    its future does. A result is encoded, or `drop` is told that nobody wants it.
    """

    begin: Callable[[Incoming], "asyncio.Future[T]"]
    encode: Callable[[T], Outgoing]
    drop: Callable[[T], None] = _nothing


Handlers = Mapping[int, Route[Any]]
"""By API key."""


def answered_by(request: Packed[R], run: Callable[[R], Awaitable[T]], encode: Callable[[T], Outgoing]) -> Route[T]:
    """A call whose work is a coroutine of its decoded header."""

    async def work(asked: R) -> T:
        running = run(asked)
        del asked  # whoever runs has it as long as it is needed
        return await running

    def begin(incoming: Incoming) -> "asyncio.Future[T]":
        return asyncio.get_running_loop().create_task(work(request.decode(incoming.header)))

    return Route(begin=begin, encode=encode)


def header_of(reply: Packed[T]) -> Callable[[T], Outgoing]:
    """The reply of a call whose result travels in the header alone."""

    def encode(result: T) -> Outgoing:
        return Outgoing(reply.encode(result))

    return encode
