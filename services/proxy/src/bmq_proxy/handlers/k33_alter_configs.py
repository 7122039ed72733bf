"""AlterConfigs, key 33, versions 0 to 2: what is not named goes back to its default. Deprecated in Kafka, and dangerous for that reason."""

from functools import partial
from typing import Any

from bmq.errors import BmqError
from bmq.wire.apis import ApiKey
from bmq.wire.message import Message
from bmq_proxy.api import Reply, Route, plain
from bmq_proxy.calls import Call
from bmq_proxy.config_resources import config_resource
from bmq_proxy.failures import controller_code
from bmq_proxy.proxy import Proxy


def route(proxy: Proxy) -> Route:
    """See the module."""
    return plain(ApiKey.ALTER_CONFIGS, partial(handle, proxy))


async def handle(proxy: Proxy, call: Call, request: Message) -> Reply:
    """Resource by resource."""
    return {"responses": [await _alter(proxy, asked, validate_only=request.validate_only) for asked in request.resources]}


async def _alter(proxy: Proxy, asked: Any, *, validate_only: bool) -> dict[str, Any]:
    code, message = 0, None
    try:
        resource = config_resource(proxy, asked.resource_type, asked.resource_name)
        configs = {config.name: config.value for config in asked.configs}
        await proxy.controller.replace_configs(resource, configs, validate_only=validate_only)
    except BmqError as error:
        code, message = controller_code(error), str(error)
    return {"error_code": code, "error_message": message, "resource_type": asked.resource_type, "resource_name": asked.resource_name}
