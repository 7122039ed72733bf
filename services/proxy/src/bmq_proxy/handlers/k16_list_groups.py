"""ListGroups, key 16, versions 0 to 5. Asked of the coordinators whose partitions this proxy stands for, as clients ask
every proxy.

A coordinator that cannot answer makes the whole answer an error.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from bmq.errors import BmqError
from bmq.wire.apis import ApiKey
from bmq.wire.chosen_codes import coordinator_code
from bmq.wire.message import Message
from bmq_proxy.api import Reply, Route, plain
from bmq_proxy.bulk import WIDE_ELEMENTS
from bmq_proxy.calls import Call
from bmq_proxy.group_calls import fields_of
from bmq_proxy.proxy import Proxy
from bmq_proxy.topics import proxies_of, stands_for

_STATES: Final = frozenset(
    (
        "preparingrebalance",
        "completingrebalance",
        "stable",
        "dead",
        "empty",
        "assigning",
        "reconciling",
        "notready",
        "unknown",
    )
)
_TYPES: Final = frozenset(("classic", "consumer", "share", "streams", "unknown"))


def route(proxy: Proxy) -> Route:
    """Serves ListGroups: the groups whose partitions this proxy stands for."""
    return plain(proxy, ApiKey.LIST_GROUPS, partial(handle, proxy))


async def handle(proxy: Proxy, call: Call, request: Message) -> Reply:
    """The groups that are found here, by name. What they are called is not known before they are there: as much as last
    time, it is taken to be.
    """
    request = _with_few_words(request)
    here = partial(stands_for, proxy, proxies_of(proxy, proxy.image, call, in_zone=False))
    bulk = proxy.bulk
    await bulk.large(call, bulk.listed_bytes)
    async with bulk.building(call, bulk.listed_groups):
        try:
            async with bulk.listing(call):
                answers = [
                    fields_of(answer)
                    for answer in await proxy.coordinators.call_all(call.api_key, request, call, only=here)
                ]
        except BmqError as error:
            return {"error_code": coordinator_code(error), "groups": []}
        code = next((answer["error_code"] for answer in answers if answer.get("error_code")), 0)
        groups = [group for answer in answers for group in answer.get("groups") or []]
        del answers
        bulk.listed_groups = max(len(groups), bulk.listed_groups * 9 // 10)
        by_id = partial(_by_id, groups)
        size_bytes, groups = await bulk.apart(call, by_id) if len(groups) > WIDE_ELEMENTS else by_id()
    bulk.listed_bytes = max(size_bytes, bulk.listed_bytes * 9 // 10)
    if size_bytes > call.answer_bytes:
        if call.let_go is not None:
            call.let_go()  # nobody waits for more while it keeps from others what it has
        await bulk.large(call, size_bytes)
    return {"error_code": code, "groups": groups}


def _by_id(groups: list[Any]) -> tuple[int, list[Any]]:
    """What they say, and they in order."""
    said_bytes = sum(
        len(group["group_id"].encode()) + len(group.get("protocol_type") or "") for group in map(fields_of, groups)
    )
    return said_bytes, sorted(groups, key=_id_of)


def _id_of(group: Any) -> str:
    return str(fields_of(group)["group_id"])


def _with_few_words(request: Message) -> Message:
    """With filters as short as they can be: every coordinator gets them, and a word that is no state or type of Kafka's
    matches nothing anyway.
    """
    return Message(
        **{
            **vars(request),
            "states_filter": _few(request.states_filter, _STATES),
            "types_filter": _few(request.types_filter, _TYPES),
        }
    )


def _few(words: Sequence[str], known: frozenset[str]) -> list[str]:
    """Those that are known, else one that is not; none where there was none."""
    return sorted({word.lower() for word in words} & known) or list(words[:1])
