"""A call as it comes in and is answered: its metadata, its requests, its answers, each within a time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, cast

import grpc.aio

from bmq_databus.grpc.errors import ClientGone, TooMuchMetadata
from bmq_databus.grpc.statuses import Failure
from bmq_databus.rules.lanes import Headers

TAKEN_WITHIN_S: Final = 30.0
"""Who takes nothing of an answer for so long does not read."""

METADATA_BYTES_MAX: Final = 12 << 10
"""What messages take of a trace (8 KiB), a token and a key."""
ENTRY_BYTES: Final = 32
"""What an entry counts beside its own bytes (RFC 9113, 6.5.2)."""

HEARD_WITHIN_S: Final = 1.0
"""How long it may take the library to hear of a connection's end."""


class Context(Protocol):
    """grpc.aio's, as far as it is used."""

    def invocation_metadata(self) -> Any:
        """Pairs of names and values."""

    def peer(self) -> str:
        """The address of its connection."""

    async def read(self) -> Any:
        """The next request, or grpc.aio.EOF."""

    async def write(self, message: bytes) -> None:
        """Returns once it is on its way to the client."""

    def set_code(self, code: grpc.StatusCode) -> None:
        """What it ends with if nothing else is said."""

    async def abort(self, code: grpc.StatusCode, details: str = ..., trailing_metadata: Any = ...) -> Any:
        """Raises grpc.aio.AbortError."""


class Call:
    """One call. One reads its requests at a time."""

    def __init__(self, context: Context, cut: Callable[[str], object]) -> None:
        """`cut` ends the connection with that peer."""
        self._context = context
        self._cut = cut
        self.is_gone = False
        """Set where its client has left."""
        self._timeout: asyncio.Timeout | None = None
        self._is_interrupted = False

    @property
    def party(self) -> str:
        """Whose it is: its connection, where that has an address."""
        return self._context.peer()

    def check(self) -> None:
        """That it has no more metadata than it may. The library bounds that of connections which have acknowledged its
        settings, and of no others. Raises TooMuchMetadata.
        """
        metadata = self._context.invocation_metadata() or ()
        if sum(len(name) + len(value) for name, value in metadata) + ENTRY_BYTES * len(metadata) > METADATA_BYTES_MAX:
            raise TooMuchMetadata(f"the call's metadata is more than {METADATA_BYTES_MAX} bytes: send less")

    @property
    def headers(self) -> Headers:
        """All metadata, made anew for each who asks: a call that waits keeps none but the library's, which has it as it
        came, and most of few bytes.
        """
        return [(name.lower().encode(), _bytes(value)) for name, value in self._context.invocation_metadata() or ()]

    def values(self, name: str) -> list[str]:
        """All metadata of that name."""
        metadata = self._context.invocation_metadata() or ()
        return [_bytes(value).decode("latin-1") for key, value in metadata if key.lower() == name]

    async def request(self) -> bytes | None:
        """The next one; None: there is no more."""
        found = await self._context.read()
        return None if found is grpc.aio.EOF else cast(bytes, found)

    async def request_within(self, within_s: float) -> bytes | None:
        """The next one; None: there is no more, or an `interrupt` ended it. Raises TimeoutError."""
        if self._is_interrupted:
            return None
        try:
            async with asyncio.timeout(within_s) as self._timeout:
                return await self.request()
        except TimeoutError:
            if self._is_interrupted:
                return None
            raise
        finally:
            self._timeout = None

    def interrupt(self) -> None:
        """No further request is waited for."""
        self._is_interrupted = True
        if self._timeout is not None:
            self._timeout.reschedule(asyncio.get_running_loop().time())

    async def answer(self, data: bytes) -> None:
        """Raises ClientGone where its client does not take it."""
        await self._taken(lambda: self._context.write(data))

    async def fail(self, failure: Failure) -> None:
        """Ends it: nothing else of it may follow. Raises ClientGone where its client does not take that.

        The library keeps the error by which it ends a call, and raises it again by itself. So here it goes no further:
        it would keep the frames that it came through, with the call's requests, in a circle that nothing ends but a
        collection of the oldest garbage.
        """
        after_s = failure.retry_after_s
        trailing = () if after_s is None else (("retry-after", str(after_s)),)
        try:
            await self._taken(lambda: self._context.abort(failure.code, failure.why, trailing))
        except grpc.aio.AbortError as error:
            error.__traceback__ = None

    async def give_up(self) -> None:
        """Its answer is not whole: it is not told that all went well, should anybody hear of it. Ends by being
        cancelled, once the library has heard that the client left: what it tells of a call whose answer has just failed
        is refused by its own core.
        """
        self._context.set_code(grpc.StatusCode.ABORTED)
        if not self.is_gone:
            await asyncio.sleep(HEARD_WITHIN_S)

    async def _taken(self, sending: Callable[[], Awaitable[Any]]) -> None:
        if self.is_gone:
            raise ClientGone("the client left")
        overdue = asyncio.get_running_loop().call_later(TAKEN_WITHIN_S, self._end_connection)
        try:
            await sending()
        except (grpc.aio.UsageError, grpc.aio.InternalError):
            raise ClientGone("the client left, or took nothing of its answer") from None
        finally:
            overdue.cancel()

    def _end_connection(self) -> None:
        """What is being sent fails by that: while it waits the library takes no status of the call either."""
        self._cut(self.party)


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()
