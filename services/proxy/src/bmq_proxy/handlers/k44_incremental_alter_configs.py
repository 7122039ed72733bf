"""IncrementalAlterConfigs, key 44, versions 0 and 1: set, delete, append, subtract."""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

from bmq.errors import BmqError, InvalidRequest, RequestError
from bmq.roles.controller import ConfigChange, ConfigResource
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

OPERATIONS = ("set", "delete", "append", "subtract")


ALTERATIONS_AT_ONCE = 64
"""The controller makes one entry of its log of those that come together."""


def route(proxy: Proxy) -> Route:
    """Serves IncrementalAlterConfigs: changes single keys of configurations."""
    return plain(proxy, ApiKey.INCREMENTAL_ALTER_CONFIGS, partial(handle, proxy))


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
        changes = _changes(asked.configs)
        if not validate_only:
            proxy.quota.take(call.client_host, texts_count(_texts(proxy, resource, changes)), proxy.loop.time())
        alter = partial(proxy.controller.alter_configs, resource, changes, validate_only=validate_only)
        await when_led(proxy, call, alter)
    except BmqError as error:
        code, message = controller_code(error), str(error)
    return {
        "error_code": code,
        "error_message": message,
        "resource_type": asked.resource_type,
        "resource_name": asked.resource_name,
    }


def _texts(proxy: Proxy, resource: ConfigResource, changes: list[ConfigChange]) -> Iterator[str | None]:
    """What is said, and what that is appended to."""
    topic = proxy.image.topic(resource.name) if resource.kind == "topic" else None
    before = proxy.image.configs.get((resource.kind, resource.name), {}) if topic is None else topic.configs
    for change in changes:
        yield change.value
        if change.operation == "append":
            yield before.get(change.name)


def _changes(configs: list[Any]) -> list[ConfigChange]:
    twice = [name for name, count in Counter(config.name for config in configs).items() if count > 1]
    if twice:
        raise RequestError(f"{', '.join(twice)}: more than once in one request")
    changes = []
    for config in configs:
        if not 0 <= config.config_operation < len(OPERATIONS):
            raise RequestError(
                f"operation {config.config_operation} on {config.name} is none of 0 to {len(OPERATIONS) - 1}"
            )
        changes.append(
            ConfigChange(name=config.name, operation=OPERATIONS[config.config_operation], value=config.value)
        )
    return changes
