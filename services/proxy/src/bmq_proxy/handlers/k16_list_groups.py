"""ListGroups, key 16, versions 0 to 5. Asked of every coordinator; one that cannot answer makes the whole answer an error."""

from functools import partial

from bmq.errors import BmqError
from bmq.wire.apis import ApiKey
from bmq.wire.message import Message
from bmq_proxy.api import Reply, Route, plain
from bmq_proxy.calls import Call
from bmq_proxy.failures import coordinator_code
from bmq_proxy.group_calls import fields_of
from bmq_proxy.proxy import Proxy


def route(proxy: Proxy) -> Route:
    """See the module."""
    return plain(ApiKey.LIST_GROUPS, partial(handle, proxy))


async def handle(proxy: Proxy, call: Call, request: Message) -> Reply:
    """All groups, by name."""
    try:
        answers = [fields_of(answer) for answer in await proxy.coordinators.call_all(call.api_key, request, call)]
    except BmqError as error:
        return {"error_code": coordinator_code(error), "groups": []}
    code = next((answer["error_code"] for answer in answers if answer.get("error_code")), 0)
    groups = [fields_of(group) for answer in answers for group in answer.get("groups") or []]
    return {"error_code": code, "groups": sorted(groups, key=lambda group: str(group["group_id"]))}
