"""What a request says beside its body: types, query, headers of messages. Pure."""

from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote, unquote_to_bytes

from bmq_databus.errors import BadMessage
from bmq_databus.http.incoming import Scope
from bmq_databus.messages.forms import NewMessage, from_json, from_json_array, from_json_lines, raw

HEADER_PREFIX: Final = b"bmq-header-"
LINES: Final = frozenset({"application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"})
"""Bodies with a message in each line."""
MANY: Final = LINES | {"application/json"}
"""Bodies with a message or several, each with an outcome of its own."""
FORMS: Final = frozenset({"application/x-www-form-urlencoded", "multipart/form-data"})
NUMBERS: Final = ("timestamp", "partition")


def media_of(content_type: str) -> str:
    """Without its parameters."""
    return content_type.partition(";")[0].strip().lower()


def wants_lines(accept: str) -> bool:
    """Whether an `Accept` names lines of JSON, and not only by a wildcard."""
    for one in accept.lower().split(","):
        media, _, parameters = one.partition(";")
        if media.strip() in LINES and parameters.replace(" ", "").rstrip("0.") != "q=":
            return True
    return False


def messages_of(media: str, body: bytes, scope: Scope) -> Iterator[list[NewMessage | BadMessage]]:
    """The messages of a whole body, in slices of bounded work. Raises BadMessage, also while they are read."""
    if media == "application/json":
        return from_json_array(body) if body.lstrip()[:1] == b"[" else iter([[from_json(body)]])
    if media in MANY:
        return from_json_lines(body)
    asked = _query(scope.get("query_string", b""))
    if unknown := asked.keys() - {"key", "timestamp", "partition"}:
        raise BadMessage(f"parameter {min(unknown)[:40]!r} means nothing here: key, timestamp and partition do")
    headers = [(name.decode("latin-1"), value) for name, value in message_headers(scope)]
    timestamp, partition = (None if one is None else one.decode("latin-1") for one in map(asked.get, NUMBERS))
    return iter([[raw(body, key=asked.get("key"), headers=headers, timestamp=timestamp, partition=partition)]])


def message_headers(scope: Scope) -> list[tuple[bytes, bytes]]:
    """Those of the request that are its message's, by the message's names."""
    return [(name[len(HEADER_PREFIX) :], value) for name, value in scope["headers"] if name.startswith(HEADER_PREFIX)]


def _query(query: bytes) -> dict[str, bytes]:
    """Values as the bytes that they are."""
    parts = [part.partition(b"=") for part in query.split(b"&") if part]
    return {unquote(name.decode("latin-1")): unquote_to_bytes(value.replace(b"+", b" ")) for name, _, value in parts}
