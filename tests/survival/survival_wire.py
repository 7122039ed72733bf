"""Kafka's protocol by hand, for peers that behave and peers that do not: blocking sockets, whole control over every
byte.
"""

import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic, time
from typing import Any, Self

from crc32c import crc32c

from bmq.wire import messages
from bmq.wire.apis import ApiKey
from bmq.wire.frames import encode_request_frame, parse_response_header
from bmq.wire.message import Message
from bmq.wire.records import Record, build_batch

CLIENT_ID = "survival"
NO_ERROR = 0


class PeerClosed(Exception):
    """The other side ended the connection."""


class Peer:
    """One connection. `source` is the loopback address that it comes from, so that the log tells peers apart."""

    def __init__(
        self, servers: str, *, source: str = "127.0.0.1", timeout_s: float = 20, receive_buffer_bytes: int | None = None
    ) -> None:
        host, port = servers.split(":")
        self.socket = socket.socket()
        self.socket.settimeout(timeout_s)
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.bind((source, 0))
        self.socket.connect((host, int(port)))
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Raises PeerClosed."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise PeerClosed(str(error)) from error

    def ask(self, api_key: int, version: int, fields: messages.Fields) -> int:
        """Sends a request; its correlation id."""
        self._correlation_id += 1
        self.send(request(api_key, version, fields, correlation_id=self._correlation_id))
        return self._correlation_id

    def call(self, api_key: int, version: int, fields: messages.Fields) -> Message:
        """A request and its answer. Raises PeerClosed, TimeoutError."""
        expected = self.ask(api_key, version, fields)
        frame = self.frame()
        correlation_id, position = parse_response_header(frame, api_key=api_key, api_version=version)
        assert correlation_id == expected, f"the answer to request {correlation_id} where {expected} was asked"
        return messages.decode_response(api_key, version, frame[position:])

    def frame(self) -> bytes:
        """The next answer. Raises PeerClosed, TimeoutError."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def was_closed(self, *, within_s: float = 5) -> bool:
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

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                piece = self.socket.recv(min(size - len(data), 1 << 20))
            except ConnectionResetError as error:
                raise PeerClosed(str(error)) from error
            if not piece:
                raise PeerClosed("the connection ended")
            data += piece
        return bytes(data)


def request(api_key: int, version: int, fields: messages.Fields, *, correlation_id: int = 1) -> bytes:
    """A whole frame with its length."""
    body = messages.encode_request(api_key, version, fields)
    return encode_request_frame(
        api_key=api_key, api_version=version, correlation_id=correlation_id, client_id=CLIENT_ID, body=body
    )


def framed(rest: bytes) -> bytes:
    """`rest` with its length before it."""
    return struct.pack(">i", len(rest)) + rest


def batch_of(*values: bytes, codec: int = 0, timestamp_ms: int | None = None) -> bytes:
    """One record batch without keys."""
    at_ms = int(time() * 1000) if timestamp_ms is None else timestamp_ms
    return build_batch([Record(0, at_ms, None, value) for value in values], codec=codec)


def with_max_timestamp(batch: bytes, timestamp_ms: int) -> bytes:
    """The same batch with another promise in its header, and a checksum that fits."""
    changed = batch[:35] + struct.pack(">q", timestamp_ms) + batch[43:]
    return changed[:17] + struct.pack(">I", crc32c(changed[21:])) + changed[21:]


def produce_fields(
    topic: str, partition: int, batch: bytes, *, acks: int = -1, timeout_ms: int = 30_000
) -> dict[str, Any]:
    return {
        "acks": acks,
        "timeout_ms": timeout_ms,
        "topic_data": [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}],
    }


def fetch_fields(
    topic: str, partition: int, offset: int, *, max_bytes: int = 1 << 20, max_wait_ms: int = 500
) -> dict[str, Any]:
    asked = {
        "partition": partition,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "log_start_offset": -1,
        "partition_max_bytes": max_bytes,
    }
    return {
        "replica_id": -1,
        "max_wait_ms": max_wait_ms,
        "min_bytes": 1,
        "max_bytes": max_bytes,
        "topics": [{"topic": topic, "partitions": [asked]}],
    }


def create_topics_fields(
    topics: Sequence[str], *, partitions: int = 1, configs: Sequence[tuple[str, str]] = ()
) -> dict[str, Any]:
    named = [{"name": name, "value": value} for name, value in configs]
    return {
        "topics": [
            {"name": topic, "num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": named}
            for topic in topics
        ],
        "timeout_ms": 30_000,
        "validate_only": False,
    }


def create_topic(peer: Peer, topic: str, *, partitions: int = 1, configs: Sequence[tuple[str, str]] = ()) -> None:
    """Raises AssertionError with what was answered."""
    (answer,) = peer.call(
        ApiKey.CREATE_TOPICS, 5, create_topics_fields([topic], partitions=partitions, configs=configs)
    ).topics
    assert answer.error_code == NO_ERROR, answer


def produce(peer: Peer, topic: str, partition: int, batch: bytes, *, timeout_ms: int = 30_000) -> tuple[int, int]:
    """(error code, base offset)."""
    answer = peer.call(ApiKey.PRODUCE, 8, produce_fields(topic, partition, batch, timeout_ms=timeout_ms))
    (result,) = answer.responses[0].partition_responses
    return result.error_code, result.base_offset


def fetch(
    peer: Peer, topic: str, partition: int, offset: int, *, max_bytes: int = 1 << 20, max_wait_ms: int = 500
) -> tuple[int, int, bytes]:
    """(error code, high watermark, batches)."""
    answer = peer.call(
        ApiKey.FETCH, 11, fetch_fields(topic, partition, offset, max_bytes=max_bytes, max_wait_ms=max_wait_ms)
    )
    (result,) = answer.responses[0].partitions
    return result.error_code, result.high_watermark, bytes(result.records or b"")
