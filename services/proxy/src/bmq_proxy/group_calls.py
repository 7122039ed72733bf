"""Forwarding a request about one group, and reading what came back. Which fields carry an error is each API's own."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from bmq.errors import BmqError
from bmq.wire.chosen_codes import coordinator_code
from bmq.wire.message import Fields, Message
from bmq_proxy.calls import Call
from bmq_proxy.proxy import Proxy


def fields_of(reply: Fields) -> dict[str, Any]:
    """A reply's fields, to be changed."""
    return dict(reply if isinstance(reply, Mapping) else reply.__dict__)


async def forward(proxy: Proxy, call: Call, group_id: str, request: Message) -> dict[str, Any]:
    """The coordinator's reply; where it cannot be had, `error_code` says why."""
    try:
        return fields_of(await proxy.coordinators.call(group_id, call.api_key, request, call))
    except BmqError as error:
        left_out = proxy.complaints.due(("group", type(error)), now=proxy.loop.time())
        if left_out is not None:
            proxy.log.info(
                "group request not answered", group=group_id, api=call.api_key, error=str(error), left_out=left_out
            )
        return {"error_code": coordinator_code(error)}


def one_by_one(proxy: Proxy, call: Call, request: Message) -> AbstractAsyncContextManager[None]:
    """Waits until what the same member asked before from there, of that kind, is over; who is no member yet waits for
    nobody. What a member is told may be megabytes, its coordinator says it again as often as it is asked, and how much
    it is nobody knows before it is here.
    """
    named = request.member_id or getattr(request, "group_instance_id", None)
    return proxy.members.of((call.client_host, call.api_key, request.group_id, named)) if named else nullcontext()
