"""InitProducerId, key 22, versions 0 to 5. Missing: transactional ids (refused: there are no transactions yet)."""

from functools import partial

from bmq.errors import BmqError
from bmq.wire.apis import ApiKey
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_proxy.api import Reply, Route, plain
from bmq_proxy.calls import Call
from bmq_proxy.proxy import Proxy
from bmq_proxy.transactions import TRANSACTION_REFUSED

EPOCH_MAX = 2**15 - 2
"""The largest epoch that can still be raised."""


def route(proxy: Proxy) -> Route:
    """Serves InitProducerId: gives idempotent producers their ids and epochs."""
    return plain(proxy, ApiKey.INIT_PRODUCER_ID, partial(handle, proxy))


async def handle(proxy: Proxy, call: Call, request: Message) -> Reply:
    """A new id, or the next epoch of one that the client has already."""
    if request.transactional_id is not None:
        proxy.tell(TRANSACTION_REFUSED, client=call.client_id)
        return _failed(int(ErrorCode.unsupported_version))
    known = 0 <= request.producer_id < proxy.image.next_producer_id and 0 <= request.producer_epoch <= EPOCH_MAX
    if known and request.producer_epoch < EPOCH_MAX:
        return {"error_code": 0, "producer_id": request.producer_id, "producer_epoch": request.producer_epoch + 1}
    try:
        return {
            "error_code": 0,
            "producer_id": await proxy.patience.answered(call, proxy.producer_ids.next),
            "producer_epoch": 0,
        }
    except BmqError:
        return _failed(int(ErrorCode.coordinator_not_available))


def _failed(code: int) -> Reply:
    return {"error_code": code, "producer_id": -1, "producer_epoch": -1}
