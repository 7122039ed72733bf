"""The client's end of one connection: says hello, splits what comes into frames. Its client decides what becomes of
calls.
"""

import asyncio
from typing import Protocol, cast

from typing_extensions import Buffer

from bmq.errors import BmqError, NotReady, WireError
from bmq.internal.framing.apis import PARTS_FROM, Purpose, attachments_of_answers_max
from bmq.internal.framing.failures import decode_failure
from bmq.internal.framing.frames import Frame, FrameReader, Kind, encode_frame
from bmq.internal.framing.hello import BYTES, HELLO, WELCOME, Identity, check_welcome, hello
from bmq.internal.framing.secret import REMEDY, Challenge
from bmq.internal.limits import ANSWER_BYTES_MAX, HEADER_BYTES_MAX
from bmq.values import NodeId


class Caller(Protocol):
    """What a link needs of its client."""

    me: Identity
    peer: NodeId
    purpose: Purpose
    scratch: bytearray

    def welcomed(self, link: "Link") -> None:
        """The other side is who it should be: calls may go."""

    def received(self, link: "Link", frame: Frame) -> None:
        """A frame behind the hello. Raises WireError."""

    def writable(self, link: "Link") -> None:
        """The other side takes more again."""

    def lost(self, link: "Link", reason: str) -> None:
        """It is over. Called once, also where it never was welcome."""


class Link(asyncio.BufferedProtocol):
    """Plumbing between a transport and a client."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._reader = FrameReader(scratch=caller.scratch)
        self._transport: asyncio.Transport | None = None
        self._is_over = False
        self._said = b""
        """The header of the hello."""
        self.version = 0
        """The version of the protocol, which the other side chose."""
        self._challenge: Challenge | None = None
        self.greeted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Resolves with the welcome; NotReady says why there is none."""
        self.is_paused = False
        self.is_leaving = False
        """The server said goodbye: nothing new is sent."""
        self.was_heard = False
        """Something came since the last look."""

    def write(self, parts: list[Buffer]) -> None:
        """Hands it to the transport, whatever it is doing."""
        if self._transport is not None:
            self._transport.writelines(cast("list[memoryview]", parts))

    def close(self) -> None:
        """What was written is still sent."""
        if self._transport is not None:
            self._transport.close()

    def abort(self, reason: str) -> None:
        """Ends it at once."""
        self._end(reason)
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._is_over:
            self._transport.abort()
            return
        self._said = HELLO.encode(hello(self._caller.me, self._caller.peer, self._caller.purpose))
        self.write(encode_frame(Kind.HELLO, header=self._said))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._end("the connection was lost" if exc is None else f"the connection was lost ({exc})")

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_over:
            return
        self.was_heard = True
        try:
            for frame in self._reader.arrived(nbytes):
                self._arrived(frame)
                if self._is_over:
                    return
        except WireError as error:
            self.abort(f"it sent what cannot be: {error}")

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self.is_paused = True

    def resume_writing(self) -> None:
        self.is_paused = False
        self._caller.writable(self)

    def _arrived(self, frame: Frame) -> None:
        if frame.kind == Kind.ERROR and not frame.correlation_id:
            self.abort(f"it refused this node: {decode_failure(frame.header).text}")
        elif self.greeted.done():
            self._caller.received(self, frame)
        elif frame.kind == Kind.CHALLENGE and self._challenge is None:
            self._prove(BYTES.decode(frame.header))
        elif frame.kind == Kind.HELLO:
            answer = WELCOME.decode(frame.header)
            check_welcome(self._caller.me, self._caller.peer, answer, self._challenge)
            self.version = answer.version
            self._reader.trust(
                header_bytes_max=HEADER_BYTES_MAX if self.version >= PARTS_FROM else ANSWER_BYTES_MAX,
                attachment_bytes_max=attachments_of_answers_max(self._caller.purpose),
            )
            self.greeted.set_result(None)
            self._caller.welcomed(self)
        else:
            raise WireError(f"a frame of kind {frame.kind} before the hello")

    def _prove(self, nonce: bytes) -> None:
        secret = self._caller.me.secret
        if secret is None:
            raise WireError(f"it asks for the cluster's secret and this node has none: {REMEDY}")
        self._challenge = secret.challenge(self._said, nonce)
        self.write(encode_frame(Kind.PROOF, header=BYTES.encode(self._challenge.client_proof())))

    def _end(self, reason: str) -> None:
        if self._is_over:
            return
        self._is_over = True
        if not self.greeted.done():
            self.greeted.set_exception(_never_stood(reason))
            self.greeted.exception()  # Seen: whoever waits for it gets it too.
        self._caller.lost(self, reason)


def _never_stood(reason: str) -> BmqError:
    return NotReady(reason)
