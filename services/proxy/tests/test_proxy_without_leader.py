"""Administrators' requests in the moment without a leading controller: those that changed nothing yet wait for one, no
longer than they say.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from proxy_in_memory import Client, MemoryController, Running, running_proxy

from bmq.errors import BmqError, ControllerUnavailable, NoLeader
from bmq.wire.error_codes import ErrorCode
from bmq_proxy import led

LONG_MS = 60_000
REQUESTS: dict[str, tuple[int, int, Callable[[int], dict[str, Any]]]] = {
    "create_topics": (19, 7, lambda ms: {"topics": [_new("new")], "timeout_ms": ms, "validate_only": False}),
    "delete_topics": (20, 5, lambda ms: {"topic_names": ["orders"], "timeout_ms": ms}),
    "create_partitions": (
        37,
        1,
        lambda ms: {
            "topics": [{"name": "orders", "count": 9, "assignments": None}],
            "timeout_ms": ms,
            "validate_only": False,
        },
    ),
    "replace_configs": (33, 1, lambda ms: {"resources": [_resource()], "validate_only": False}),
    "alter_configs": (44, 1, lambda ms: {"resources": [_resource()], "validate_only": False}),
    "reassign": (
        45,
        1,
        lambda ms: {
            "topics": [{"name": "orders", "partitions": [{"partition_index": 0, "replicas": None}]}],
            "timeout_ms": ms,
        },
    ),
}


def _new(name: str) -> dict[str, Any]:
    return {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}


def _resource() -> dict[str, Any]:
    return {"resource_type": 2, "resource_name": "orders", "configs": []}


def refusing(controller: MemoryController, what: str, error: BmqError, *, times: int) -> list[int]:
    """Has the first calls refused; gives what counts the calls."""
    real, seen = getattr(controller, what), [0]

    async def call(*args: Any, **kwargs: Any) -> Any:
        seen[0] += 1
        if seen[0] <= times:
            raise error
        return await real(*args, **kwargs)

    setattr(controller, what, call)
    return seen


def run(test: Callable[[Running, Client], Awaitable[None]]) -> None:
    async def main() -> None:
        async with running_proxy() as proxy:
            proxy.metadata.add_topic("orders", 1)
            await asyncio.wait_for(test(proxy, await proxy.connect()), 20)

    asyncio.run(main())


async def codes(client: Client, what: str, timeout_ms: int) -> list[tuple[int, str | None]]:
    api_key, version, request = REQUESTS[what]
    reply = await client.ask(api_key, version, request(timeout_ms))
    if what == "create_topics":
        found = reply.topics
    elif what == "create_partitions":
        found = reply.results
    elif what == "reassign":
        found = reply.responses[0].partitions
    else:
        found = reply.responses
    return [(one.error_code, getattr(one, "error_message", None)) for one in found]


@pytest.mark.parametrize("what", REQUESTS)
def test_it_waits_until_a_controller_leads(what: str) -> None:
    async def test(proxy: Running, client: Client) -> None:
        seen = refusing(proxy.controller, what, NoLeader("no controller leads"), times=2)
        assert [code for code, _ in await codes(client, what, LONG_MS)] == [0]
        assert seen == [3]

    run(test)


@pytest.mark.parametrize("what", REQUESTS)
def test_it_is_asked_once_where_the_outcome_is_unknown(what: str) -> None:
    async def test(proxy: Running, client: Client) -> None:
        seen = refusing(
            proxy.controller, what, ControllerUnavailable("whether it was carried out is not known"), times=1
        )
        assert [code for code, _ in await codes(client, what, LONG_MS)] == [ErrorCode.request_timed_out]
        assert seen == [1]

    run(test)


@pytest.mark.parametrize("what", REQUESTS)
def test_where_none_leads_in_time_it_is_told_that_nothing_was_changed(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(led, "LEADER_WAIT_S", 0.05)

    async def test(proxy: Running, client: Client) -> None:
        refusing(proxy.controller, what, NoLeader("no controller leads"), times=1_000)
        [(code, message)] = await codes(client, what, LONG_MS)
        assert code == ErrorCode.request_timed_out
        if message is not None:
            assert "nothing was changed" in message
            assert "bmq cluster status" in message

    run(test)


def test_it_waits_no_longer_than_the_request_says() -> None:
    async def test(proxy: Running, client: Client) -> None:
        seen = refusing(proxy.controller, "create_topics", NoLeader("no controller leads"), times=1_000)
        assert [code for code, _ in await codes(client, "create_topics", 0)] == [ErrorCode.request_timed_out]
        assert seen == [1]

    run(test)
