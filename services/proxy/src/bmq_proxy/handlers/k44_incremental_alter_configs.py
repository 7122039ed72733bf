"""IncrementalAlterConfigs, key 44, versions 0 and 1: set, delete, append, subtract."""

from collections import Counter
from functools import partial
from typing import Any

from bmq.errors import BmqError, RequestError
from bmq.roles.controller import ConfigChange
from bmq.wire.apis import ApiKey
from bmq.wire.message import Message
from bmq_proxy.api import Reply, Route, plain
from bmq_proxy.calls import Call
from bmq_proxy.config_resources import config_resource
from bmq_proxy.failures import controller_code
from bmq_proxy.proxy import Proxy

OPERATIONS = ("set", "delete", "append", "subtract")


def route(proxy: Proxy) -> Route:
    """See the module."""
    return plain(ApiKey.INCREMENTAL_ALTER_CONFIGS, partial(handle, proxy))


async def handle(proxy: Proxy, call: Call, request: Message) -> Reply:
    """Resource by resource."""
    return {"responses": [await _alter(proxy, asked, validate_only=request.validate_only) for asked in request.resources]}


async def _alter(proxy: Proxy, asked: Any, *, validate_only: bool) -> dict[str, Any]:
    code, message = 0, None
    try:
        resource = config_resource(proxy, asked.resource_type, asked.resource_name)
        await proxy.controller.alter_configs(resource, _changes(asked.configs), validate_only=validate_only)
    except BmqError as error:
        code, message = controller_code(error), str(error)
    return {"error_code": code, "error_message": message, "resource_type": asked.resource_type, "resource_name": asked.resource_name}


def _changes(configs: list[Any]) -> list[ConfigChange]:
    twice = [name for name, count in Counter(config.name for config in configs).items() if count > 1]
    if twice:
        raise RequestError(f"{', '.join(twice)}: more than once in one request")
    changes = []
    for config in configs:
        if not 0 <= config.config_operation < len(OPERATIONS):
            raise RequestError(f"operation {config.config_operation} on {config.name} is none of 0 to {len(OPERATIONS) - 1}")
        changes.append(ConfigChange(name=config.name, operation=OPERATIONS[config.config_operation], value=config.value))
    return changes
