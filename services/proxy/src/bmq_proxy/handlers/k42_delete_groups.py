"""DeleteGroups, key 42, versions 0 to 3. Split among the coordinators of its groups."""

from functools import partial
from typing import Any

from bmq.errors import BmqError
from bmq.wire.apis import ApiKey
from bmq.wire.chosen_codes import coordinator_code
from bmq.wire.message import Message
from bmq_proxy.api import Reply, Route, plain
from bmq_proxy.calls import Call
from bmq_proxy.group_calls import fields_of
from bmq_proxy.proxy import Proxy


def route(proxy: Proxy) -> Route:
    """Serves DeleteGroups, split among the coordinators of its groups."""
    return plain(proxy, ApiKey.DELETE_GROUPS, partial(handle, proxy))


async def handle(proxy: Proxy, call: Call, request: Message) -> Reply:
    """In the order of the request, each group once."""
    asked = list(dict.fromkeys(request.groups_names))
    answers = await proxy.coordinators.call_each(
        asked, call.api_key, lambda group_ids: Message(groups_names=group_ids), call
    )
    found: dict[str, dict[str, Any]] = {}
    pace = proxy.bulk.pace(call)
    for group_ids, answer in answers:
        if isinstance(answer, BmqError):
            results = [{"group_id": group_id, "error_code": coordinator_code(answer)} for group_id in group_ids]
        else:
            results = fields_of(answer)["results"]
        for one in map(fields_of, results):
            found[one["group_id"]] = one
            await pace.step()
    return {"results": [found[group_id] for group_id in asked]}
