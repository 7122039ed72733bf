"""What a request names more than once is answered once, or refused once."""

import asyncio
from typing import Any

import pytest
from proxy_in_memory import running_proxy

from bmq.wire.apis import SERVED
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq.wire.schemas import api_schema
from bmq_proxy.repeats import ELSEWHERE, ONCE, once


@pytest.mark.parametrize("api_key", sorted(SERVED), ids=lambda key: SERVED[key].name)
def test_every_array_of_a_request_has_its_rule(api_key: int) -> None:
    arrays = {field.name for field in api_schema(api_key).request if field.array}
    if arrays and api_key not in ELSEWHERE:
        assert arrays == set(ONCE[api_key]), "name it in repeats.ONCE, or say in repeats.ELSEWHERE who bounds it"


def test_elements_that_name_the_same_become_one_with_the_parts_of_all() -> None:
    def topic(name: str, *partitions: int) -> Message:
        return Message(topic=name, partitions=list(partitions))

    request = once(35, Message(topics=[topic("a", 1, 2, 1), topic("b", 0), topic("a", 3, 2)]))
    assert [(one.topic, one.partitions) for one in request.topics] == [("a", [1, 2, 3]), ("b", [0])]


def test_who_asks_for_some_keys_and_for_all_of_them_gets_all() -> None:
    def resource(keys: list[str] | None) -> Message:
        return Message(resource_type=2, resource_name="a", configuration_keys=keys)

    assert once(32, Message(resources=[resource(["x"]), resource(["y", "x"])])).resources[0].configuration_keys == [
        "x",
        "y",
    ]
    assert once(32, Message(resources=[resource(["x"]), resource(None)])).resources[0].configuration_keys is None
    assert once(32, Message(resources=[resource([]), resource(["x"])])).resources[0].configuration_keys == []


def test_a_topic_named_thousands_of_times_is_described_once() -> None:
    async def main() -> None:
        async with running_proxy() as running:
            running.metadata.add_topic("wide", 50)
            client = await running.connect()
            found = await client.ask(3, 4, {"topics": [{"name": "wide"}] * 3_000, "allow_auto_topic_creation": False})
            assert [(topic.name, len(topic.partitions)) for topic in found.topics] == [("wide", 50)]
            one = {"resource_type": 2, "resource_name": "wide", "configuration_keys": None}
            described = await client.ask(32, 4, {"resources": [one] * 3_000})
            assert [result.resource_name for result in described.results] == ["wide"]

    asyncio.run(main())


def test_who_says_two_things_of_one_partition_or_resource_is_refused_once() -> None:
    async def main() -> None:
        async with running_proxy() as running:
            running.metadata.add_topic("orders", 2)
            client = await running.connect()

            def partitions(*fields: dict[str, Any]) -> dict[str, Any]:
                return {"topics": [{"name": "orders", "partitions": list(fields)}]}

            twice = partitions(
                {"partition_index": 0, "timestamp": -1},
                {"partition_index": 0, "timestamp": -2},
                {"partition_index": 1, "timestamp": -1},
            )
            looked_up = await client.ask(2, 5, {"replica_id": -1, **twice})
            codes = [(one.partition_index, one.error_code) for one in looked_up.topics[0].partitions]
            assert codes == [(0, ErrorCode.invalid_request), (1, 0)]
            deleted = await client.ask(
                21,
                1,
                partitions({"partition_index": 0, "offset": 0}, {"partition_index": 0, "offset": 1})
                | {"timeout_ms": 1_000},
            )
            assert [one.error_code for one in deleted.topics[0].partitions] == [ErrorCode.invalid_request]
            change = {
                "resource_type": 2,
                "resource_name": "orders",
                "configs": [{"name": "retention.ms", "config_operation": 0, "value": "1000"}],
            }
            altered = await client.ask(44, 0, {"resources": [change, change], "validate_only": False})
            assert [one.error_code for one in altered.responses] == [ErrorCode.invalid_request]
            assert not running.controller.calls

    asyncio.run(main())
