"""The trace context of a request (https://www.w3.org/TR/trace-context/, https://www.w3.org/TR/baggage/), which its
messages carry on in headers of the same names. Pure.
"""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from bmq_databus.messages.forms import NewMessage

TRACEPARENT: Final = b"traceparent"
OTHERS: Final = (b"tracestate", b"baggage")
OTHERS_BYTES_MAX: Final = 8 << 10
OTHERS_BYTES_MANY: Final = 1 << 10
"""What tracestate and baggage have together where each of several messages gets them: a short body may have many."""
_TRACEPARENT: Final = re.compile(
    rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.{0,200})?"
)

Context = tuple[tuple[str, bytes | None], ...]
"""Headers of a message."""


def context_of(request: Sequence[tuple[bytes, bytes]], *, messages: int) -> Context:
    """That of a request with so many messages, by its headers, their names in lower case. What is not well-formed is as
    good as not there; tracestate goes with traceparent alone.
    """
    said: dict[bytes, list[bytes]] = {}
    for name, value in request:
        if name in (TRACEPARENT, *OTHERS):
            said.setdefault(name, []).append(value.strip())
    if not said:
        return ()
    found: list[tuple[str, bytes | None]] = []
    parents = said.get(TRACEPARENT, [])
    if len(parents) == 1 and _TRACEPARENT.fullmatch(parents[0]):
        found.append(("traceparent", parents[0]))
    others = [(name, b",".join(said[name])) for name in OTHERS if name in said and (found or name != OTHERS[0])]
    if sum(len(value) for _, value in others) <= (OTHERS_BYTES_MAX if messages == 1 else OTHERS_BYTES_MANY):
        found += [(name.decode(), value) for name, value in others if value]
    return tuple(found)


def with_context(new: NewMessage, context: Context) -> NewMessage:
    """The message with those of the headers that it has not itself; one that names its own traceparent is of another
    trace, and gets none of them.
    """
    own = {name.lower() for name, _ in new.headers}
    if "traceparent" in own:
        return new
    missing = tuple(header for header in context if header[0] not in own)
    return msgspec.structs.replace(new, headers=(*new.headers, *missing)) if missing else new
