"""ApiVersions, key 18, versions 0 to 5. From version 5 on a client may say whom it means to reach (KIP-1242).

The response header is always version 0, and a version that is not served gets a version 0 body with error 35: a client
that knows nothing of this server yet must be able to read it. It is asked before anything else, by whoever connects,
and answered on the event loop: so it is refused where it says more than a client has to say.
"""

import re
from collections.abc import Iterable
from typing import Final

from typing_extensions import Buffer

from bmq.errors import WireError
from bmq.wire import messages
from bmq.wire.apis import SERVED, ApiKey
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_proxy.api import Reply, Route, encode, error_name
from bmq_proxy.calls import Answer, Call, Pending
from bmq_proxy.metrics import client_named
from bmq_proxy.proxy import Proxy

_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_NAMED_FROM = 3
BODY_BYTES_MAX: Final = 4 << 10
"""Two names and a cluster's id take some hundred."""
TAGS_MAX: Final = 64
"""As many as a request's header may have."""


def route(proxy: Proxy, served: Iterable[Route]) -> Route:
    """Answers at once, with what is in `served` at that time."""

    api = SERVED[ApiKey.API_VERSIONS]
    told: dict[int, tuple[object, bytes]] = {}
    """For each version what it was last told, and of which image: to put it together takes longer than all else."""

    def begin(call: Call, body: Buffer) -> Pending:
        if not api.serves(call.version):
            return encode(call, {"error_code": ErrorCode.unsupported_version, "api_keys": _keys(served)}, version=0)
        if (size_bytes := memoryview(body).nbytes) > BODY_BYTES_MAX:
            raise WireError(f"an ApiVersions request of {size_bytes} bytes; at most {BODY_BYTES_MAX} are allowed")
        request = messages.decode_request(call.api_key, call.version, body, elements_max=TAGS_MAX)
        if refusal := _refusal(proxy, call, request):
            return encode(call, {"error_code": refusal, "api_keys": []})
        now = proxy.image.position, proxy.image.features, [route.api for route in served]
        before, answer = told.get(call.version, (None, b""))
        if before != now:
            answer = messages.encode_response(call.api_key, call.version, _reply(proxy, served))
            told[call.version] = now, answer
        return Answer(parts=(answer,), size_bytes=len(answer), error=error_name(ErrorCode.none))

    return Route(api=api, begin=begin, ends_with_client=True, any_version=True, on_loop=True)


def _refusal(proxy: Proxy, call: Call, request: Message) -> ErrorCode:
    if call.version >= _NAMED_FROM and not (
        _NAME.fullmatch(request.client_software_name) and _NAME.fullmatch(request.client_software_version)
    ):
        return ErrorCode.invalid_request
    if call.version >= _NAMED_FROM:
        client_named(request.client_software_name)
    if request.cluster_id is not None and (request.cluster_id, request.node_id) != (
        proxy.image.cluster_id,
        proxy.settings.node_id,
    ):
        return ErrorCode.rebootstrap_required  # an address that is another's by now
    return ErrorCode.none


def _reply(proxy: Proxy, served: Iterable[Route]) -> Reply:
    image = proxy.image
    features = [
        {"name": name, "min_version_level": level, "max_version_level": level}
        for name, level in sorted(image.features.items())
    ]
    return {
        "error_code": ErrorCode.none,
        "api_keys": _keys(served),
        "supported_features": [
            {
                "name": one["name"],
                "min_version": min(1, int(str(one["max_version_level"]))),
                "max_version": one["max_version_level"],
            }
            for one in features
        ],
        "finalized_features_epoch": image.position,
        "finalized_features": features,
    }


def _keys(served: Iterable[Route]) -> list[Reply]:
    apis = sorted((route.api for route in served), key=lambda api: api.key)
    return [{"api_key": api.key, "min_version": api.advertised_min, "max_version": api.version_max} for api in apis]
