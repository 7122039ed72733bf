"""Requests that decode and mean nothing, and bytes that hardly decode: each is answered or ends its own connection, and
no handler fails.
"""

import asyncio
from random import Random
from typing import Any

import pytest
from proxy_in_memory import Client, Running, running_proxy
from tests.waiting import until_async

from bmq.wire import messages
from bmq.wire.apis import SERVED
from bmq.wire.schemas import Field, api_schema
from bmq_proxy import metrics
from bmq_proxy.settings import ProxySettings

_NAMES = ("orders", "", "__consumer_offsets", "no such", "a" * 300, "g")
_INTEGERS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63, "uint16": 15}


def random_value(field: Field, version: int, rng: Random, topic_ids: list[Any]) -> Any:
    """Any value that the schema takes, often a meaningful one."""
    if field.nullable_in(version) and rng.random() < 0.2:
        return None
    if field.array:
        count = rng.choice((0, 1, 1, 2))
        return [random_single(field, version, rng, topic_ids) for _ in range(count)]
    return random_single(field, version, rng, topic_ids)


def random_single(field: Field, version: int, rng: Random, topic_ids: list[Any]) -> Any:
    match field.type:
        case "bool":
            return rng.random() < 0.5
        case "string":
            return rng.choice(_NAMES)
        case "bytes":
            return rng.randbytes(rng.choice((0, 3, 100)))
        case "uuid":
            return rng.choice(topic_ids)
        case "float64":
            return rng.random()
        case "struct":
            return random_struct(field.fields, version, rng, topic_ids)
        case _:
            bits = _INTEGERS[field.type]
            if field.name in ("max_wait_ms", "timeout_ms"):
                return rng.choice((0, -5, 3))
            return (
                rng.choice((0, 1, -1, -2, 2, 3, rng.randrange(-(2**bits), 2**bits)))
                if field.type != "uint16"
                else rng.randrange(2**15)
            )


def random_struct(fields: tuple[Field, ...], version: int, rng: Random, topic_ids: list[Any]) -> dict[str, Any]:
    return {field.name: random_value(field, version, rng, topic_ids) for field in fields if field.in_version(version)}


def coordinator(partition: int, api_key: int, request: Any, caller: Any) -> Any:
    """Answers what each API's reply must have."""
    match api_key:
        case 9:
            return {"groups": [{"group_id": group.group_id, "topics": [], "error_code": 0} for group in request.groups]}
        case 15:
            return {"groups": [{"group_id": group, "error_code": 0} for group in request.groups]}
        case 42:
            return {"results": [{"group_id": group, "error_code": 0} for group in request.groups_names]}
        case 8:
            return {"topics": [{"name": topic.name, "partitions": []} for topic in request.topics]}
        case 16:
            return {"error_code": 0, "groups": []}
        case _:
            return {"error_code": 0}


def failures() -> float:
    return metrics.HANDLER_FAILURES._value.get()


@pytest.mark.parametrize("api_key", sorted(SERVED), ids=lambda key: SERVED[key].name)
def test_no_handler_fails_whatever_a_request_says(api_key: int) -> None:
    async def main() -> None:
        rng = Random(api_key)
        before = failures()
        async with running_proxy(ProxySettings(connections_max=5_000)) as proxy:
            topic = proxy.metadata.add_topic("orders", 2)
            proxy.owner.on_group_call = coordinator
            client = await proxy.connect()
            api = SERVED[api_key]
            answered = 0
            for n in range(80):
                version = api.version_min + n % (api.version_max - api.version_min + 1)
                request = random_struct(api_schema(api_key).request, version, rng, [topic.topic_id, None])
                body = messages.encode_request(api_key, version, request)
                if n % 3 == 2 and body:
                    changed = bytearray(body)
                    for _ in range(rng.choice((1, 2, 8))):
                        changed[rng.randrange(len(changed))] = rng.randrange(256)
                    body = bytes(changed)
                answered += await whole(proxy, client, api_key, version, body)
                if client.writer.is_closing():
                    client = await proxy.connect()
            assert answered > 20, "most of what decodes is answered"
            for connection in list(proxy.role.server.endpoint.connections):
                connection.abort()
            await until_async(lambda: not proxy.role.server.endpoint.in_flight, "no request to be left", 10)
            assert proxy.role.server.endpoint.request_memory.held_bytes == 0
            assert proxy.role.proxy.reader.memory.held_bytes == 0
        assert failures() == before

    asyncio.run(main())


async def whole(proxy: Running, client: Client, api_key: int, version: int, body: bytes) -> bool:
    """Sends one request; whether it is answered. A connection that was ended is marked by closing our side."""
    client.send(api_key, version, raw=body)
    other = client.send(18, 0)
    try:
        async with asyncio.timeout(5):
            number, _ = await client.receive_raw()
            if number != other:
                await client.receive_raw()
                return True
            return api_key == 0  # acks=0
    except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
        client.close()
        return False
