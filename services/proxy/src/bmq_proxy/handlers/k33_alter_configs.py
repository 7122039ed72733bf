"""AlterConfigs, key 33, versions 0 to 2: what is not named goes back to its default. Deprecated in Kafka, and dangerous
for that reason.
"""

from functools import partial
from typing import Any

from bmq.errors import BmqError, InvalidRequest
from bmq.wire.apis import ApiKey
from bmq.wire.chosen_codes import controller_code
from bmq.wire.message import Message
from bmq_proxy.api import Reply, Route, plain
from bmq_proxy.calls import Call
from bmq_proxy.config_resources import config_resource
from bmq_proxy.creation import texts_count
from bmq_proxy.led import when_led
from bmq_proxy.proxy import Proxy
from bmq_proxy.repeats import is_repeated

ALTERATIONS_AT_ONCE = 64
"""The controller makes one entry of its log of those that come together."""


def route(proxy: Proxy) -> Route:
    """Serves AlterConfigs: replaces whole configurations."""
    return plain(proxy, ApiKey.ALTER_CONFIGS, partial(handle, proxy))


async def handle(proxy: Proxy, call: Call, request: Message) -> Reply:
    """Resource by resource; one that is named twice is refused."""

    async def alter(asked: Any) -> dict[str, Any]:
        return await _alter(proxy, call, asked, validate_only=request.validate_only)

    return {"responses": await proxy.bulk.each(call, alter, request.resources, at_once=ALTERATIONS_AT_ONCE)}


async def _alter(proxy: Proxy, call: Call, asked: Any, *, validate_only: bool) -> dict[str, Any]:
    code, message = 0, None
    try:
        if is_repeated(asked):
            raise InvalidRequest("The request names this resource more than once")
        resource = config_resource(proxy, asked.resource_type, asked.resource_name)
        configs = {config.name: config.value for config in asked.configs}
        if not validate_only:
            proxy.quota.take(call.client_host, texts_count(configs.values()), proxy.loop.time())
        await when_led(
            proxy, call, partial(proxy.controller.replace_configs, resource, configs, validate_only=validate_only)
        )
    except BmqError as error:
        code, message = controller_code(error), str(error)
    return {
        "error_code": code,
        "error_message": message,
        "resource_type": asked.resource_type,
        "resource_name": asked.resource_name,
    }
