"""Requests that name much."""

from collections.abc import Iterator
from typing import Final

from abuse_requests import Abuse, abuses

from bmq.wire import messages
from bmq.wire.apis import SERVED, ApiKey
from bmq.wire.frames import parse_request_header
from bmq_proxy.bulk import elements_of

ELEMENT_BYTES: Final = 1 << 10
"""What something that is named takes while it is worked on, with its part of the answer, at most."""
_FLEXIBLE_FETCH: Final = 12
"""Newer ones may have fields with tags for each partition, of which few are taken."""


def version_of(api_key: int) -> int:
    return _FLEXIBLE_FETCH if api_key == ApiKey.FETCH else SERVED[api_key].version_max


def wide(api_key: int) -> Iterator[Abuse]:
    """Of all its abuses those with many elements."""
    return (abuse for abuse in abuses(api_key, version_of(api_key)) if "×" in abuse.what)


def elements_in(abuse: Abuse) -> int:
    header = parse_request_header(memoryview(abuse.frame)[4:])
    body = memoryview(abuse.frame)[4:][header.body_position :]
    return elements_of(
        messages.decode_request(abuse.api_key, abuse.version, body, elements_max=1_000_000), at_most=1_000_000
    )
