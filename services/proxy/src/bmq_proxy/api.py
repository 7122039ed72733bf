"""How one API key is served: the function that starts a request. The table is in dispatch.py; versions and limits are
the wire's.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Final

from typing_extensions import Buffer

from bmq.wire import messages
from bmq.wire.apis import ENDING, SERVED, WAIT_FOR_OTHERS, Api, ApiKey
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Fields, Message
from bmq_proxy.bulk import COUNTED_ANSWER_BYTES, WIDE_ELEMENTS, Bulk, elements_of
from bmq_proxy.calls import Answer, Call, Pending
from bmq_proxy.proxy import Proxy
from bmq_proxy.repeats import once

Reply = Fields
"""A response with the field names of kio's newest version; times end in `_ms`."""

Handler = Callable[[Call, Message], Awaitable[Reply]]

ERRORS_LOOKED_AT: Final = 1_000
"""Elements of an answer among which its first error is looked for, which is for a metric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """`overlaps`: may run beside earlier requests of its kind. `ends_with_client`: given up when the client is gone;
    others are carried through. `delays_stop`: a clean stop waits for it. `on_loop`: decoded on the event loop whatever
    its size, so that its bytes always cost a turn.

    `begin` raises WireError. It gets versions that are not served only where `any_version` says that it answers them.
    """

    api: Api
    begin: Callable[[Call, Buffer], Pending]
    overlaps: bool = False
    ends_with_client: bool = False
    delays_stop: bool = True
    any_version: bool = False
    on_loop: bool = False


def plain(proxy: Proxy, key: ApiKey, handler: Handler) -> Route:
    """An API whose handler gets a decoded Message, in which each thing is named once, and returns a Reply."""
    api, bulk = SERVED[key], proxy.bulk

    async def run(call: Call, request: Message) -> Answer:
        try:
            return await encoded(bulk, call, await handler(call, request))
        finally:
            if call.let_go is not None:
                call.let_go()

    async def run_counted(call: Call, body: Buffer) -> Answer:
        async with bulk.request(call, memoryview(body).nbytes, partial(decoded, bulk, call, body)) as request:
            call.is_carried_through = not getattr(request, "validate_only", False)
            return await run(call, request)

    async def run_apart(call: Call, body: Buffer) -> Answer:
        # Who waits for others of its group would keep all wide requests waiting, and its frame in memory.
        request = await bulk.apart(call, partial(decoded, bulk, call, body))
        del body
        return await run(call, request)

    def begin(call: Call, body: Buffer) -> Pending:
        size_bytes = memoryview(body).nbytes
        waits = key in WAIT_FOR_OTHERS
        if bulk.is_small(size_bytes) or (waits and not bulk.is_wide(size_bytes)):
            running = run(call, decoded(bulk, call, body))
        else:
            call.is_carried_through = False  # while it waits to be decoded nothing has begun
            running = run_apart(call, body) if waits else run_counted(call, body)
        return asyncio.get_running_loop().create_task(running, name=api.name)

    return Route(api=api, begin=begin, ends_with_client=key in ENDING, delays_stop=key != ApiKey.JOIN_GROUP)


def decoded(bulk: Bulk, call: Call, body: Buffer) -> Message:
    """The request, in which each thing is named once. Raises WireError."""
    return once(
        call.api_key,
        messages.decode_request(call.api_key, call.version, body, elements_max=bulk.limits.request_elements_max),
    )


async def encoded(bulk: Bulk, call: Call, reply: Reply, *, version: int | None = None) -> Answer:
    """The answer to a call, counted until the client has it; a wide or large one is encoded beside the event loop."""
    wide = call.answer_bytes > COUNTED_ANSWER_BYTES or elements_of(reply, at_most=WIDE_ELEMENTS) > WIDE_ELEMENTS
    answer = (
        await bulk.apart(call, partial(encode, call, reply, version=version))
        if wide
        else encode(call, reply, version=version)
    )
    answer.flushed = bulk.counted(call, answer.size_bytes)
    return answer


def encode(call: Call, reply: Reply, *, version: int | None = None) -> Answer:
    """The answer to a call; `version` where it is not the request's."""
    body = messages.encode_response(call.api_key, call.version if version is None else version, reply)
    return Answer(parts=(body,), size_bytes=len(body), error=first_error(reply))


def first_error(reply: object) -> str:
    """The first error code in a reply by its name, "none" where there is none (among the first elements of a wide
    one).
    """
    return error_name(_first_code(reply, [ERRORS_LOOKED_AT]))


@cache
def error_name(code: int) -> str:
    """A code in the protocol's own words: what metrics are labelled with. 0 is "none"."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def _first_code(value: object, left: list[int]) -> int:
    if isinstance(value, Message):
        value = value.__dict__
    if isinstance(value, Mapping):
        code = value.get("error_code", 0)
        if code:
            return int(code)
        inner: Iterable[object] = value.values()
    elif isinstance(value, list | tuple):
        inner = value
    else:
        return 0
    for one in inner:
        if left[0] <= 0:
            return 0
        if isinstance(one, Message | Mapping | list | tuple):
            left[0] -= 1
            if code := _first_code(one, left):
                return code
    return 0
