"""The records of one request, and what is told of each, as Confluent's REST API has them: objects one after another."""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from bmq_databus.errors import BadMessage
from bmq_databus.http.answers import JSON, Reply
from bmq_databus.http.incoming import Scope
from bmq_databus.http.streams import LINE_BYTES_MAX, SILENT_BYTES_MAX, Cutter, End
from bmq_databus.messages.forms import BODY_HEADERS_MAX, NewMessage, in_slices
from bmq_databus.messages.objects import Objects
from bmq_databus.messages.records import Written, record_of
from bmq_databus.producing.outcomes import Outcome, may_be_written

RECORDS_MAX: Final = 1_000
"""A whole body has so many at most; a stream has no end."""
STEP_BYTES: Final = 4 << 10
CODES: Final = {401: 40101, 403: 40301, 404: 40403, 503: 50302}
"""Where it is not the status itself, which these begin with."""
MAYBE: Final = 50003
"""What may be written all the same."""
NOWHERE: Final = -1
"""The partition and offset of what is written, and where is not known yet, or is no place in the topic."""
_lines: Final = msgspec.json.Encoder().encode_lines


class _Said(msgspec.Struct, frozen=True):
    key: Written | None = None
    value: Written | None = None
    timestamp: str | None = None


_NOTHING: Final = _Said()


class Records:
    """Those of a stream, or of a whole body."""

    media = JSON.encode()
    content_type = f"{JSON}; charset=utf-8"
    """What answers with results are: others are refusals."""
    step_bytes = STEP_BYTES

    def __init__(self, cluster: str, topic: str) -> None:
        """As the request's path names them."""
        self._cluster = cluster
        self._topic = topic
        self._said: deque[_Said] = deque()
        """What is told of records that have no result yet."""

    def cutter(self) -> Cutter:
        """This stream's."""
        return _objects()

    def message(self, text: bytes) -> NewMessage | BadMessage:
        """One of those that were cut, in their order."""
        record = record_of(text)
        if isinstance(record, BadMessage):
            self._said.append(_NOTHING)
            return record
        self._said.append(_Said(record.key, record.value, record.timestamp))
        return record.message

    def messages(self, body: bytes, _: Scope) -> Iterator[list[NewMessage | BadMessage]]:
        """Those of a whole body, in slices of bounded work. Raises BadMessage, NoObjects, EndlessLine."""
        cutter = _objects()
        count = headers = 0
        for at in range(0, len(body), STEP_BYTES):
            for some in in_slices(cutter.feed(body[at : at + STEP_BYTES]), self.message):
                count += len(some)
                headers += sum(len(one.headers) for one in some if isinstance(one, NewMessage))
                if count > RECORDS_MAX or headers > BODY_HEADERS_MAX:
                    raise BadMessage(
                        f"a body has {RECORDS_MAX} records and {BODY_HEADERS_MAX} headers at most: send fewer at a "
                        "time, or a stream (Transfer-Encoding: chunked)"
                    )
                yield some
            yield []
        list(cutter.end())
        if not count:
            raise BadMessage("the body has no record")

    def reply(self, outcomes: list[Outcome]) -> Reply:
        """Whatever became of them: each has its own error_code."""
        told = [self._result(one, said) for one, said in zip(outcomes, self._said, strict=True)]
        return Reply(status=200, body=_lines(told), content_type=self.content_type)

    def parts(self, body: bytes, _: Scope) -> tuple[bytes, ...]:
        """What makes a request another one."""
        return (b"records", body)

    def results(self, outcomes: Sequence[Outcome]) -> bytes:
        """Those of a stream's records, in their order; once for each."""
        return _lines([self._result(one, self._said.popleft()) for one in outcomes])

    def last(self, end: End, *, written: int, refused: int) -> bytes:
        """Why nothing more was read; nothing where all was."""
        if not end.error:
            return b""
        told = f"{end.error} (of this request {written} records were written, and {refused} refused)"
        return _lines([{"error_code": CODES.get(end.status, end.status), "message": told}])

    def _result(self, outcome: Outcome, said: _Said) -> dict[str, Any]:
        status = outcome["status"]
        if status not in (200, 202):
            code = MAYBE if status == 503 and may_be_written(outcome) else CODES.get(status, status)
            return {"error_code": code, "message": outcome["error"]}
        is_elsewhere = "deadLetter" in outcome
        result: dict[str, Any] = {
            "error_code": 200,
            "cluster_id": self._cluster,
            "topic_name": self._topic,
            "partition_id": NOWHERE if is_elsewhere else outcome.get("partition", NOWHERE),
            "offset": NOWHERE if is_elsewhere else outcome.get("offset", NOWHERE),
        }
        if is_elsewhere:
            result["message"] = outcome["error"]
        if said.timestamp is not None:
            result["timestamp"] = said.timestamp
        if said.key is not None:
            result["key"] = said.key
        if said.value is not None:
            result["value"] = said.value
        return result


def _objects() -> Objects:
    return Objects(object_bytes_max=LINE_BYTES_MAX, silent_bytes_max=SILENT_BYTES_MAX)
