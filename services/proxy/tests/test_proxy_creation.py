"""What one client may create: in one request, and over time."""

import asyncio
from typing import Any

import pytest
from proxy_in_memory import running_proxy

from bmq.config.limits import limits_of
from bmq.errors import QuotaExceeded
from bmq.roles.controller import NewTopic
from bmq.wire.error_codes import ErrorCode
from bmq_proxy.creation import CreationQuota, pieces
from bmq_proxy.handlers.k32_describe_configs import LONG_TEXTS_BYTES_MAX
from bmq_proxy.settings import ProxySettings


def topics(count: int, partitions: int = 1, first: int = 0) -> dict[str, Any]:
    names = [f"t{n}" for n in range(first, first + count)]
    made = [
        {"name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": []}
        for name in names
    ]
    return {"topics": made, "timeout_ms": 1_000, "validate_only": False}


def test_an_address_gets_back_over_time_what_it_used_up_and_holds_up_no_other() -> None:
    quota = CreationQuota(limits_of({"create_partitions_burst": "100", "create_partitions_per_minute": "60"}))
    quota.take("/a", 90, 0.0)
    with pytest.raises(QuotaExceeded, match="create_partitions_burst = 100") as refused:
        quota.take("/a", 20, 0.0)
    assert refused.value.wait_s == pytest.approx(10)
    quota.take("/b", 100, 0.0)
    quota.take("/a", 20, 10.0)
    with pytest.raises(QuotaExceeded):
        quota.take("/a", 1, 10.0)


def test_pieces_are_small_and_leave_nothing_out() -> None:
    wanted = [NewTopic(name=f"t{n}", partitions=(-1, 400, 5_000)[n % 3]) for n in range(1_000)]
    found = list(pieces(wanted, default_partitions=3))
    assert [topic for piece in found for topic in piece] == wanted
    assert all(len(piece) == 1 or sum(max(3, topic.partitions) for topic in piece) <= 1_000 for piece in found)


def test_one_request_for_too_many_partitions_is_refused_whole_with_the_limits_name() -> None:
    async def main() -> None:
        async with running_proxy(ProxySettings(limits=limits_of({"create_partitions_max": 100}))) as running:
            client = await running.connect()
            for version in (4, 7):
                refused = await client.ask(19, version, topics(3, 40))
                assert [topic.error_code for topic in refused.topics] == [ErrorCode.policy_violation] * 3
                assert "create_partitions_max is 100" in refused.topics[0].error_message
            assert not running.controller.calls
            made = await client.ask(19, 7, topics(2, 40))
            assert [topic.error_code for topic in made.topics] == [0, 0]
            grown = await client.ask(
                37,
                1,
                {
                    "topics": [{"name": "t0", "count": 200, "assignments": None}],
                    "timeout_ms": 1,
                    "validate_only": False,
                },
            )
            assert grown.results[0].error_code == ErrorCode.policy_violation

    asyncio.run(main())


def test_who_used_up_its_quota_is_told_when_to_come_again() -> None:
    async def main() -> None:
        given = limits_of({"create_partitions_burst": 100, "create_partitions_per_minute": 60})
        async with running_proxy(ProxySettings(limits=given)) as running:
            client = await running.connect()
            assert [topic.error_code for topic in (await client.ask(19, 7, topics(2, 50))).topics] == [0, 0]
            refused = await client.ask(19, 7, topics(1, 10, first=5))
            assert [topic.error_code for topic in refused.topics] == [ErrorCode.throttling_quota_exceeded]
            assert 9_000 <= refused.throttle_time_ms <= 10_000
            older = await client.ask(19, 4, topics(1, 10, first=5))
            assert [topic.error_code for topic in older.topics] == [ErrorCode.policy_violation]
            asked = await client.ask(3, 4, {"topics": [{"name": "wished-for"}], "allow_auto_topic_creation": True})
            assert [topic.error_code for topic in asked.topics] == [ErrorCode.unknown_topic_or_partition]
            grown = await client.ask(
                37,
                3,
                {"topics": [{"name": "t0", "count": 60, "assignments": None}], "timeout_ms": 1, "validate_only": False},
            )
            assert grown.results[0].error_code == ErrorCode.throttling_quota_exceeded
            assert (await client.ask(19, 7, topics(2, 50))).topics[0].error_code == ErrorCode.topic_already_exists

    asyncio.run(main())


def test_many_topics_of_one_request_come_to_the_controller_in_pieces() -> None:
    async def main() -> None:
        async with running_proxy() as running:
            client = await running.connect()
            made = await client.ask(19, 7, topics(900))
            assert [topic.error_code for topic in made.topics] == [0] * 900
            assert [len(call) - 1 for call in running.controller.calls] == [200, 200, 200, 200, 100]

    asyncio.run(main())


LONG = "1:2," * 1_000
THROTTLED = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


def test_long_texts_of_configurations_count_like_partitions_when_they_are_made_and_when_they_are_changed() -> None:
    async def main() -> None:
        given = limits_of({"create_partitions_burst": 20, "create_partitions_per_minute": 60})
        async with running_proxy(ProxySettings(limits=given)) as running:
            client = await running.connect()
            texts = [{"name": name, "value": LONG} for name in THROTTLED]
            codes = []
            for n in range(4):
                request = topics(1, first=n)
                request["topics"][0]["configs"] = texts
                codes.append((await client.ask(19, 7, request)).topics[0].error_code)
            assert codes == [0, 0, ErrorCode.throttling_quota_exceeded, ErrorCode.throttling_quota_exceeded]
            assert (await client.ask(19, 7, topics(2, first=2))).topics[0].error_code == 0, (
                "a topic with short ones counts as its partitions"
            )
            resource = {"resource_type": 2, "resource_name": "t0"}
            for operation, value in ((0, LONG), (2, "9:9")):
                changes = [{"name": name, "config_operation": operation, "value": value} for name in THROTTLED]
                changed = await client.ask(
                    44, 1, {"resources": [{**resource, "configs": changes}], "validate_only": False}
                )
                assert changed.responses[0].error_code == ErrorCode.throttling_quota_exceeded, (
                    "also what is appended to"
                )
            replaced = await client.ask(33, 2, {"resources": [{**resource, "configs": texts}], "validate_only": False})
            assert replaced.responses[0].error_code == ErrorCode.throttling_quota_exceeded
            short = {"name": "retention.ms", "config_operation": 0, "value": "1000"}
            assert (
                await client.ask(44, 1, {"resources": [{**resource, "configs": [short]}], "validate_only": False})
            ).responses[0].error_code == 0

    asyncio.run(main())


def test_a_description_of_many_topics_has_long_texts_of_some_of_them_and_says_so_of_the_others() -> None:
    async def main() -> None:
        given = limits_of({"create_partitions_burst": 10_000})
        async with running_proxy(ProxySettings(limits=given)) as running:
            client = await running.connect()
            request = topics(100)
            for topic in request["topics"]:
                topic["configs"] = [{"name": name, "value": LONG} for name in THROTTLED]
            assert not any(topic.error_code for topic in (await client.ask(19, 7, request)).topics)
            named = [{"resource_type": 2, "resource_name": f"t{n}", "configuration_keys": None} for n in range(100)]
            described = (
                await client.ask(32, 4, {"resources": named, "include_synonyms": True, "include_documentation": False})
            ).results
            whole = [one for one in described if not one.error_code]
            assert sum(len(row.value) for one in whole for row in one.configs if row.name in THROTTLED) == 2 * len(
                LONG
            ) * len(whole)
            assert 2 * 2 * len(LONG) * len(whole) <= LONG_TEXTS_BYTES_MAX < 2 * 2 * len(LONG) * (len(whole) + 1)
            assert {one.error_code for one in described[len(whole) :]} == {ErrorCode.policy_violation}
            assert "describe fewer" in described[-1].error_message
            short = [{**one, "configuration_keys": ["retention.ms"]} for one in named]
            described = (
                await client.ask(32, 4, {"resources": short, "include_synonyms": True, "include_documentation": False})
            ).results
            assert not any(one.error_code for one in described), "none of what is asked for is long"

    asyncio.run(main())
