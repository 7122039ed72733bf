"""Kafka's protocol by hand, for peers that behave and peers that do not: whole control over every byte, which client
libraries do not give. One client with a blocking socket, one of an event loop; both name things alike.
"""

import asyncio
import itertools
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from time import monotonic
from typing import Any, Final, Self

from bmq.wire import messages
from bmq.wire.frames import encode_request_frame, parse_response_header
from bmq.wire.message import Message

CLIENT_ID: Final = "test"
ANSWERED_WITHIN_S: Final = 60.0
"""Only what fails takes that long, also on a machine that others use."""
_ELEMENTS_MAX: Final = 10_000_000
_AT_ONCE_BYTES: Final = 1 << 20


class PeerClosed(ConnectionError):
    """The other side ended the connection."""


def framed(
    api_key: int,
    version: int,
    fields: Mapping[str, Any] | None = None,
    *,
    body: bytes | None = None,
    correlation_id: int = 1,
    client_id: str = CLIENT_ID,
) -> bytes:
    """A whole request with its length before it."""
    if body is None:
        body = messages.encode_request(api_key, version, fields or {})
    return bytes(
        encode_request_frame(
            api_key=api_key, api_version=version, correlation_id=correlation_id, client_id=client_id, body=body
        )
    )


def parsed(api_key: int, version: int, frame: bytes) -> tuple[int, Message]:
    """(correlation id, answer) of a frame without its length."""
    number, position = parse_response_header(frame, api_key=api_key, api_version=version)
    return number, messages.decode_response(api_key, version, frame[position:], elements_max=_ELEMENTS_MAX)


class _Asked:
    """What was asked on one connection, by correlation id: answers do not say what they are."""

    def __init__(self) -> None:
        self.client_id = CLIENT_ID
        self._numbers = itertools.count(1)
        self._asked: dict[int, tuple[int, int]] = {}

    def framed(self, api_key: int, version: int, fields: Mapping[str, Any] | None, raw: bytes | None) -> bytes:
        self.newest = next(self._numbers)
        self._asked[self.newest] = (api_key, version)
        return framed(api_key, version, fields, body=raw, correlation_id=self.newest, client_id=self.client_id)

    def body(self, frame: bytes) -> tuple[int, bytes]:
        number: int = struct.unpack_from(">i", frame)[0]
        api_key, version = self._asked[number]
        return number, frame[parse_response_header(frame, api_key=api_key, api_version=version)[1] :]

    def parsed(self, frame: bytes) -> tuple[int, Message]:
        return parsed(*self._asked[struct.unpack_from(">i", frame)[0]], frame)


class BareClient:
    """One connection of a blocking socket, to HOST:PORT. `own_host` is the loopback address that it comes from, which
    tells peers apart.
    """

    def __init__(
        self,
        address: str | tuple[str, int],
        *,
        own_host: str = "127.0.0.1",
        timeout_s: float = ANSWERED_WITHIN_S,
        receive_buffer_bytes: int | None = None,
    ) -> None:
        if isinstance(address, str):
            host, _, port = address.rpartition(":")
            address = host, int(port)
        self.socket = socket.socket()
        self.socket.settimeout(timeout_s)
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._asked = _Asked()
        try:
            # The port is taken when it connects: one that waits for its end to be over with may be used again then.
            self.socket.setsockopt(socket.IPPROTO_IP, getattr(socket, "IP_BIND_ADDRESS_NO_PORT", 24), 1)
            self.socket.bind((own_host, 0))
            self.socket.connect(address)
        except OSError:
            self.socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    @property
    def client_id(self) -> str:
        return self._asked.client_id

    @client_id.setter
    def client_id(self, client_id: str) -> None:
        self._asked.client_id = client_id

    def send(
        self, api_key: int, version: int, fields: Mapping[str, Any] | None = None, *, raw: bytes | None = None
    ) -> int:
        """A request, of whose body `raw` takes the place; its correlation id. Raises PeerClosed."""
        self.send_bytes(self._asked.framed(api_key, version, fields, raw))
        return self._asked.newest

    def receive(self) -> tuple[int, Message]:
        """The next answer to what was sent: (correlation id, message). Raises PeerClosed, TimeoutError."""
        return self._asked.parsed(self.receive_frame())

    def ask(self, api_key: int, version: int, fields: Mapping[str, Any] | None = None) -> Message:
        """A request and its answer. Raises PeerClosed, TimeoutError."""
        number = self.send(api_key, version, fields)
        got, message = self.receive()
        assert got == number, f"the answer to request {got} where {number} was asked"
        return message

    def send_bytes(self, data: bytes) -> None:
        """Whatever they are. Raises PeerClosed."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise PeerClosed(str(error)) from error

    def send_some(self, data: bytes, *, within_s: float) -> None:
        """As much of it as the other side takes."""
        self.socket.settimeout(within_s)
        with suppress(TimeoutError, ConnectionError):
            self.socket.sendall(data)

    def receive_frame(self) -> bytes:
        """The next answer without its length, whatever it is. Raises PeerClosed, TimeoutError."""
        (size_bytes,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size_bytes)

    def exchange(self, frame: bytes) -> bytes | None:
        """What is answered to these bytes; None: the connection was closed. Raises TimeoutError."""
        try:
            self.send_bytes(frame)
            return self.receive_frame()
        except ConnectionError:
            return None

    def closed(self, *, within_s: float = ANSWERED_WITHIN_S) -> bool:
        """Reads whatever comes until the other side ends the connection; False where it does not in time."""
        deadline = monotonic() + within_s
        with suppress(TimeoutError):
            while (left_s := deadline - monotonic()) > 0:
                self.socket.settimeout(left_s)
                try:
                    if not self.socket.recv(1 << 16):
                        return True
                except (ConnectionResetError, BrokenPipeError):
                    return True
        return False

    def _exactly(self, size_bytes: int) -> bytes:
        data = bytearray(size_bytes)
        view, at = memoryview(data), 0
        while at < size_bytes:
            try:
                count = self.socket.recv_into(view[at : at + _AT_ONCE_BYTES])
            except ConnectionError as error:
                raise PeerClosed(str(error)) from error
            if not count:
                raise PeerClosed(f"the connection ended after {at} of {size_bytes} bytes")
            at += count
        return bytes(data)


class AsyncBareClient:
    """One connection of an event loop. Answers are read in the order in which they come."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._asked = _Asked()

    @classmethod
    async def connect(cls, host: str | None = None, port: int | None = None, **options: Any) -> Self:
        """`options` as for asyncio.open_connection: a socket that is connected, where it comes from, how much is read
        ahead.
        """
        return cls(*await asyncio.open_connection(host, port, **options))

    @property
    def client_id(self) -> str:
        return self._asked.client_id

    @client_id.setter
    def client_id(self, client_id: str) -> None:
        self._asked.client_id = client_id

    def send(
        self, api_key: int, version: int, fields: Mapping[str, Any] | None = None, *, raw: bytes | None = None
    ) -> int:
        """Writes a request, of whose body `raw` takes the place; its correlation id."""
        self.writer.write(self._asked.framed(api_key, version, fields, raw))
        return self._asked.newest

    async def receive(self) -> tuple[int, Message]:
        """The next answer to what was sent: (correlation id, message). Raises IncompleteReadError, ConnectionError."""
        return self._asked.parsed(await self.receive_frame())

    async def receive_raw(self) -> tuple[int, bytes]:
        """The same, with the answer's body as it came."""
        return self._asked.body(await self.receive_frame())

    async def receive_frame(self) -> bytes:
        """The next answer without its length, whatever it is."""
        return await self.reader.readexactly(int.from_bytes(await self.reader.readexactly(4), "big"))

    async def ask(
        self, api_key: int, version: int, fields: Mapping[str, Any] | None = None, *, raw: bytes | None = None
    ) -> Message:
        """One request and its answer."""
        number = self.send(api_key, version, fields, raw=raw)
        got, message = await asyncio.wait_for(self.receive(), ANSWERED_WITHIN_S)
        assert got == number, f"the answer to request {got} where {number} was asked"
        return message

    async def closed(self) -> bool:
        """Whether the other side ends the connection."""
        try:
            return await asyncio.wait_for(self.reader.read(1), ANSWERED_WITHIN_S) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self.writer.close()
