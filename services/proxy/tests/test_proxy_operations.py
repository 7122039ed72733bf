"""What clients ask of the controller goes by turns of addresses, and in a bounded number at a time."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from proxy_in_memory import Client, running_proxy
from tests.waiting import until_async

from bmq.roles.controller import NewTopic, TopicResult
from bmq_proxy import proxy as proxies

AT_ONCE = 3
CREATE_TOPICS, METADATA = 19, 3


def created(name: str) -> dict[str, Any]:
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    return {"topics": [topic], "timeout_ms": 60_000, "validate_only": False}


@pytest.mark.parametrize("by", ["CreateTopics", "Metadata"])
def test_an_operation_does_not_wait_behind_all_of_another_address(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxies, "OPERATIONS_AT_ONCE", AT_ONCE)

    async def main() -> None:
        async with running_proxy() as proxy:
            controller = proxy.controller
            create, asked, may_answer = controller.create_topics, [], asyncio.Semaphore(0)

            async def slow(topics: Sequence[NewTopic], **how: Any) -> list[TopicResult]:
                asked.extend(topic.name for topic in topics)
                await may_answer.acquire()
                return await create(topics, **how)

            monkeypatch.setattr(controller, "create_topics", slow)

            async def ask(client: Client, name: str) -> Any:
                if by == "CreateTopics":
                    return await client.ask(CREATE_TOPICS, 7, created(name))
                return await client.ask(METADATA, 12, metadata(name))

            many = [await proxy.connect(local_addr=("127.0.0.2", 0)) for _ in range(12)]
            waiting = [asyncio.create_task(ask(client, f"many-{index}")) for index, client in enumerate(many)]
            await until_async(lambda: len(asked) == AT_ONCE, "as many as may be at once")
            one = asyncio.create_task(ask(await proxy.connect(), "one"))
            await asyncio.sleep(0.2)
            assert len(asked) == AT_ONCE, "no more than so many at a time"
            may_answer.release()
            may_answer.release()
            await until_async(lambda: len(asked) == AT_ONCE + 2, "the next two")
            assert "one" in asked[AT_ONCE:], asked
            waiting[-1].cancel()
            for _ in range(12):
                may_answer.release()
            await asyncio.wait_for(asyncio.gather(one, *waiting[:-1]), 20)

    asyncio.run(main())


def metadata(name: str) -> dict[str, Any]:
    return {
        "topics": [{"name": name}],
        "allow_auto_topic_creation": True,
        "include_topic_authorized_operations": False,
    }
