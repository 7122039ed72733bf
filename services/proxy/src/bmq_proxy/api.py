"""How one API key is served: the function that starts a request. The table is in dispatch.py; versions and limits are the wire's."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cache

from typing_extensions import Buffer

from bmq.wire import messages
from bmq.wire.apis import SERVED, Api, ApiKey
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Fields, Message
from bmq_proxy.calls import Answer, Call, Pending

Reply = Fields
"""A response with the field names of kio's newest version; times end in `_ms`."""

Handler = Callable[[Call, Message], Awaitable[Reply]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """`overlaps`: may run beside earlier requests of its kind. `outlives`: carried through when the client is gone.

    `begin` raises WireError. It gets versions that are not served only where `any_version` says that it answers them.
    """

    api: Api
    begin: Callable[[Call, Buffer], Pending]
    overlaps: bool = False
    outlives: bool = True
    any_version: bool = False


def plain(key: ApiKey, handler: Handler) -> Route:
    """An API whose handler gets a decoded Message and returns a Reply."""
    api = SERVED[key]

    async def run(call: Call, request: Message) -> Answer:
        return encode(call, await handler(call, request))

    def begin(call: Call, body: Buffer) -> Pending:
        request = messages.decode_request(call.api_key, call.version, body)
        return asyncio.get_running_loop().create_task(run(call, request), name=api.name)

    return Route(api=api, begin=begin)


def encode(call: Call, reply: Reply, *, version: int | None = None) -> Answer:
    """The answer to a call; `version` where it is not the request's."""
    body = messages.encode_response(call.api_key, call.version if version is None else version, reply)
    return Answer(parts=(body,), size_bytes=len(body), error=first_error(reply))


def first_error(reply: object) -> str:
    """The first error code in a reply by its name, "none" where there is none."""
    return error_name(_first_code(reply))


@cache
def error_name(code: int) -> str:
    """A code in the protocol's own words: what metrics are labelled with. 0 is "none"."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def _first_code(value: object) -> int:
    if isinstance(value, Message):
        value = value.__dict__
    if isinstance(value, Mapping):
        code = value.get("error_code", 0)
        return int(code) if code else next(filter(None, map(_first_code, value.values())), 0)
    if isinstance(value, list | tuple):
        return next(filter(None, map(_first_code, value)), 0)
    return 0
