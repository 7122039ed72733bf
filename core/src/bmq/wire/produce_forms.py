"""Produce requests that come one after the other and differ in what they write alone: read once, and then compared."""

import struct
from collections.abc import Sequence
from typing import Final

from bmq.errors import WireError
from bmq.wire.apis import SERVED, ApiKey
from bmq.wire.cursor import compact_size
from bmq.wire.frames import RequestHeader, encode_response_frame
from bmq.wire.primitives import uvarint_bytes
from bmq.wire.produce import (
    FLEXIBLE_FROM,
    ONE_BATCH_TAGS_BYTES,
    ProducedPartition,
    ProducedTopic,
    ProduceRequest,
    ProduceTopic,
    encode_produce_response,
    parse_produce,
)

FORM_BYTES_MAX: Final = 1 << 8
"""What stands before the records of a request that has a form: each connection keeps one, and a client may call itself
something of 32 KiB."""
_CORRELATION_ID_AT: Final = 4
_BEFORE_CLIENT_ID: Final = 8
"""API key, version, correlation id."""
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")


class ProduceForm:
    """A request with one batch, without its correlation id and that batch: clients send
    thousands that differ in nothing else.
    """

    __slots__ = (
        "_answer",
        "_before",
        "_begins",
        "_behind",
        "_compact",
        "_head",
        "_is_answered",
        "_offset_at",
        "_partition",
        "_records_at",
        "_request",
        "_rest",
        "_told",
        "_topic",
        "client_id",
        "version",
    )

    def __init__(self, frame: memoryview, *, version: int, client_id: str, records_at: int, request: ProduceRequest):
        """`records_at` is where the length of the records stands in the frame."""
        self.version = version
        self.client_id = client_id
        topic = request.topics[0]
        self._topic = topic._replace(partitions=[])  # the frame is not held by its form
        self._request = request._replace(topics=[])
        self._partition = topic.partitions[0][0]
        self._compact = version >= FLEXIBLE_FROM
        self._records_at = records_at
        self._begins = struct.Struct(f">ii{records_at - _BEFORE_CLIENT_ID}s")
        self._head, _, self._rest = self._begins.unpack_from(frame)
        self._answer: struct.Struct | None = None
        self._is_answered = False
        self._told: tuple[int, int, int] | None = None
        self._offset_at = 0
        self._before = self._behind = b""

    def batch_of(self, frame: memoryview) -> tuple[int, memoryview] | None:
        """(correlation id, records) of a request of this form; None: it is of another one."""
        end = frame.nbytes
        try:
            head, correlation_id, rest = self._begins.unpack_from(frame)
            if rest != self._rest or head != self._head:
                return None
            if self._compact:
                end -= ONE_BATCH_TAGS_BYTES
                size_bytes, begin = compact_size(frame, self._records_at)
                if any(frame[end:]):
                    return None
            else:
                (size_bytes,) = _INT32.unpack_from(frame, self._records_at)
                begin = self._records_at + _INT32.size
        except (struct.error, IndexError):
            return None
        return (correlation_id, frame[begin:end]) if 0 < size_bytes == end - begin else None

    def request_for(self, records: memoryview) -> ProduceRequest:
        """The request of this form that has these records."""
        transactional_id, acks, timeout_ms, _ = self._request
        name, topic_id, _ = self._topic
        topics = [ProduceTopic(name, topic_id, [(self._partition, records)])]
        return ProduceRequest(transactional_id, acks, timeout_ms, topics)

    def answers(
        self,
        correlation_ids: Sequence[int],
        base_offsets: Sequence[int],
        *,
        log_append_time_ms: int,
        log_start: int,
        throttle_ms: int,
    ) -> bytes:
        """The whole frames that answer requests of this form which were taken."""
        told = log_append_time_ms, log_start, throttle_ms
        if self._answer is None:
            if len(correlation_ids) == 1 and not self._is_answered:  # it may be the only one of its form
                self._is_answered = True
                body = self._body(base_offsets[0], *told)
                header_version = SERVED[ApiKey.PRODUCE].response_header_version(self.version)
                return b"".join(encode_response_frame(header_version, correlation_ids[0], (body,)))
            self._answer = self._around_offset(told)
        if told != self._told:
            self._told = told
            body = self._body(0, *told)
            self._before, self._behind = body[: self._offset_at], body[self._offset_at + _INT64.size :]
        pack, size_bytes = self._answer.pack, self._answer.size - _INT32.size
        before, behind = self._before, self._behind
        return b"".join(
            [
                pack(size_bytes, correlation_id, before, base_offset, behind)
                for correlation_id, base_offset in zip(correlation_ids, base_offsets, strict=True)
            ]
        )

    def _around_offset(self, told: tuple[int, int, int]) -> struct.Struct:
        """Size, correlation id, what stands before the base offset, that, what stands behind it."""
        body, other = self._body(0, *told), self._body(-1, *told)
        self._offset_at = next(at for at, (one, two) in enumerate(zip(body, other, strict=True)) if one != two)
        no_tags = "x" if SERVED[ApiKey.PRODUCE].response_header_version(self.version) else ""
        behind_bytes = len(body) - self._offset_at - _INT64.size
        return struct.Struct(f">ii{no_tags}{self._offset_at}sq{behind_bytes}s")

    def _body(self, base_offset: int, log_append_time_ms: int, log_start: int, throttle_ms: int) -> bytes:
        name, topic_id, _ = self._topic
        taken = ProducedPartition(self._partition, 0, base_offset, log_append_time_ms, log_start)
        topics = [ProducedTopic(name, topic_id, (taken,))]
        return encode_produce_response(self.version, topics, throttle_ms=throttle_ms)


class Forms:
    """Those of all connections: clients that call themselves alike and write to one partition share one. Whoever was
    not asked for longest goes first.
    """

    def __init__(self, most: int) -> None:
        assert most > 0
        self._most = most
        self._forms: dict[bytes, ProduceForm] = {}

    def __len__(self) -> int:
        return len(self._forms)

    def of(self, frame: memoryview, header: RequestHeader) -> tuple[ProduceForm, ProduceRequest] | None:
        """The form of a whole request frame, and what it is; None: it has several batches or none, or very long names,
        or is no Produce request.
        """
        version = header.api_version
        if header.api_key != ApiKey.PRODUCE or header.client_id is None or header.body_position > FORM_BYTES_MAX:
            return None
        if version >= FLEXIBLE_FROM and any(frame[-ONE_BATCH_TAGS_BYTES:]):
            return None  # it has tagged fields: no client of today's does, and reading them twice is dear
        try:
            request = parse_produce(version, frame[header.body_position :], partitions_max=1)
        except WireError:
            return None
        if not request.topics or not request.topics[0].partitions:
            return None
        records = request.topics[0].partitions[0][1]
        if not records:
            return None
        if version >= FLEXIBLE_FROM:
            length_bytes, tags_bytes = uvarint_bytes(records.nbytes + 1), ONE_BATCH_TAGS_BYTES
        else:
            length_bytes, tags_bytes = _INT32.size, 0
        records_at = frame.nbytes - tags_bytes - records.nbytes - length_bytes
        if records_at > FORM_BYTES_MAX:
            return None
        key = b"".join((frame[:_CORRELATION_ID_AT], frame[_BEFORE_CLIENT_ID:records_at]))
        form = self._forms.pop(key, None)
        if form is None:
            form = ProduceForm(
                frame, version=version, client_id=header.client_id, records_at=records_at, request=request
            )
            found = form.batch_of(frame)
            if found is None or found[1].nbytes != records.nbytes:
                return None  # it is written otherwise than it has to be, or something stands behind it
            if len(self._forms) >= self._most:
                del self._forms[next(iter(self._forms))]
        self._forms[key] = form
        return form, request
