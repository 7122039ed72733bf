"""Fetch requests to one broker over one connection, by bmq's own codec: batches come as they are, whatever is in them.

librdkafka decodes records itself, and its Python layer ends the process at a header's key that is not UTF-8. Here the
batches go the same way as those of segments.
"""

import socket
import ssl
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Self
from uuid import UUID

from bmq.errors import WireError
from bmq.values import TopicId
from bmq.wire.apis import ApiKey
from bmq.wire.batches import HEADER_SIZE_BYTES, BatchHeader, read_header
from bmq.wire.frames import encode_request_frame, parse_response_header
from bmq.wire.messages import decode_response, encode_request
from bmq_spark.source.failures import SourceFailed

VERSION: Final = 13
"""The first that names topics by their ids: another topic of the same name is never read for the one that was
planned."""
METADATA_VERSION: Final = 12
FETCH_BYTES: Final = 4 << 20
ANSWER_BYTES_MAX: Final = 256 << 20
"""A batch that is larger than FETCH_BYTES comes whole."""
WAIT_MS: Final = 1000
TIMEOUT_S: Final = 30.0
_LENGTH: Final = struct.Struct(">i")
_SIZE_END: Final = 12
"""Base offset and length, the first fields of a batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What a broker answered of one partition."""

    error_code: int
    batches: bytes


class FetchConnection:
    """To the leader of a partition; closed at the end of a `with`. Raises OSError, WireError."""

    def __init__(self, host: str, port: int, settings: Mapping[str, str]) -> None:
        """`settings` are librdkafka's."""
        self._client_id = settings.get("client.id")
        self._correlation_id = 0
        plain = socket.create_connection((host, port), timeout=TIMEOUT_S)
        try:
            self._socket = _secured(plain, host, settings)
        except BaseException:
            plain.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._socket.close()

    def fetch(self, topic_id: TopicId, partition: int, offset: int) -> Fetched:
        """From `offset` on; nothing where there is nothing yet, after WAIT_MS."""
        asked = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": FETCH_BYTES}
        request = {
            "replica_id": -1,
            "max_wait_ms": WAIT_MS,
            "min_bytes": 1,
            "max_bytes": FETCH_BYTES,
            "isolation_level": 0,  # as segments are read
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"topic_id": topic_id, "partitions": [asked]}],
            "forgotten_topics_data": [],
            "rack_id": "",
        }
        response = self._ask(ApiKey.FETCH, VERSION, request)
        if response.error_code:
            return Fetched(error_code=response.error_code, batches=b"")
        for one in response.responses:
            for found in one.partitions:
                if (one.topic_id, found.partition_index) == (topic_id, partition):
                    return Fetched(error_code=found.error_code, batches=bytes(found.records or b""))
        raise WireError(f"an answer without topic {topic_id}, partition {partition}")

    def topic_id(self, name: str) -> UUID | None:
        """What the broker knows a topic of this name by; None: it knows none."""
        request = {
            "topics": [{"topic_id": UUID(int=0), "name": name}],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
        }
        for one in self._ask(ApiKey.METADATA, METADATA_VERSION, request).topics:
            if one.name == name and not one.error_code:
                return one.topic_id  # type: ignore[no-any-return]
        return None

    def _ask(self, api_key: ApiKey, version: int, request: dict[str, Any]) -> Any:
        self._correlation_id += 1
        frame = encode_request_frame(
            api_key=api_key,
            api_version=version,
            correlation_id=self._correlation_id,
            client_id=self._client_id,
            body=encode_request(api_key, version, request),
        )
        self._socket.sendall(frame)
        answer = self._read_frame()
        correlation_id, position = parse_response_header(answer, api_key=api_key, api_version=version)
        if correlation_id != self._correlation_id:
            raise WireError(f"the answer to request {correlation_id} instead of {self._correlation_id}")
        return decode_response(api_key, version, memoryview(answer)[position:])

    def _read_frame(self) -> bytes:
        (size,) = _LENGTH.unpack(self._read(_LENGTH.size))
        if not 0 < size <= ANSWER_BYTES_MAX:
            raise WireError(f"an answer of {size} bytes: is that a Kafka listener?")
        return self._read(size)

    def _read(self, size: int) -> bytes:
        data = bytearray(size)
        view, filled = memoryview(data), 0
        while filled < size:
            count = self._socket.recv_into(view[filled:])
            if not count:
                raise ConnectionResetError("the broker closed the connection")
            filled += count
        return bytes(data)


def whole_batches(data: bytes) -> list[BatchHeader]:
    """The headers of the whole batches; the last one may be cut off. Raises CorruptBatch, UnsupportedMessageFormat."""
    headers: list[BatchHeader] = []
    at = 0
    while len(data) - at >= HEADER_SIZE_BYTES:
        if int.from_bytes(data[at + 8 : at + _SIZE_END], "big", signed=True) + _SIZE_END > len(data) - at:
            break
        headers.append(read_header(data, at))
        at = headers[-1].end
    return headers


def check_security(settings: Mapping[str, str]) -> None:
    """Raises SourceFailed where the settings ask for what these connections cannot do."""
    protocol = settings.get("security.protocol", "plaintext").lower()
    if protocol not in ("plaintext", "ssl"):
        remedy = "tail=protocol speaks plaintext and ssl: name a listener of these, or set tail=none"
        raise SourceFailed(f"option kafka.security.protocol={protocol}: {remedy}")


def _secured(plain: socket.socket, host: str, settings: Mapping[str, str]) -> socket.socket:
    check_security(settings)
    if settings.get("security.protocol", "plaintext").lower() != "ssl":
        return plain
    context = ssl.create_default_context(cafile=settings.get("ssl.ca.location"), cadata=settings.get("ssl.ca.pem"))
    if settings.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if certificate := settings.get("ssl.certificate.location"):
        context.load_cert_chain(certificate, settings.get("ssl.key.location"), settings.get("ssl.key.password"))
    return context.wrap_socket(plain, server_hostname=host)
