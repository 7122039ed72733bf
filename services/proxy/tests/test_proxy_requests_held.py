"""How many elements all requests that are worked on have is bounded, also where each is narrow; whoever has to wait is
answered all the same.
"""

import asyncio
from typing import Any

import pytest
from proxy_in_memory import running_proxy
from test_proxy_fetches_held import living, turns
from tests.waiting import until_async

from bmq.config.limits import Limits
from bmq.roles.owner import OffsetForTime
from bmq.wire.message import Message
from bmq_proxy.bulk import DELETIONS_PER_ADDRESS
from bmq_proxy.settings import ProxySettings

HELD = 1_000
EACH = 100
CLIENTS = 40
SETTINGS = ProxySettings(limits=Limits(wide_request_elements=HELD), store_wait_ms=600_000)


class Holding:
    """An owner's `offset_for_time` that answers nobody before it is let go."""

    def __init__(self, owner: Any) -> None:
        self._answer = owner.offset_for_time
        self.let_go = asyncio.Event()
        self.asked = 0
        owner.offset_for_time = self

    async def __call__(self, *asked: Any, **more: Any) -> OffsetForTime:
        self.asked += 1
        await self.let_go.wait()
        answer: OffsetForTime = await self._answer(*asked, **more)
        return answer


def look_ups(partitions: int) -> dict[str, Any]:
    asked = [{"partition_index": index, "current_leader_epoch": -1, "timestamp": 1_000} for index in range(partitions)]
    return {"replica_id": -1, "isolation_level": 0, "topics": [{"name": "wide", "partitions": asked}]}


@pytest.mark.parametrize("partitions", [EACH, 2 * HELD])
def test_many_requests_that_wait_do_not_all_stay_decoded_and_all_are_answered(partitions: int) -> None:
    async def main() -> None:
        async with running_proxy(SETTINGS) as proxy:
            proxy.metadata.add_topic("wide", partitions)
            owner = Holding(proxy.owner)
            clients = [await proxy.connect() for _ in range(CLIENTS)]
            for client in clients:
                client.send(2, 4, look_ups(partitions))
            few = await proxy.connect()
            few.send(2, 4, look_ups(1))
            await until_async(lambda: owner.asked, "a call at the owner")
            await turns(2_000)
            # What finds room for itself, what is let in by turns beside it, what names little; and of those that wait
            # two that were just counted, on a busy machine, while the next one is.
            decoded = len([one for one in living(Message) if "timestamp" in one.__dict__])
            assert decoded <= max(HELD // 2 + HELD, partitions) + 3 * partitions + 1 < CLIENTS * partitions // 2
            owner.let_go.set()
            answers = await asyncio.wait_for(asyncio.gather(*(client.receive() for client in [*clients, few])), 60)
            assert [len(answer.topics[0].partitions) for _, answer in answers] == [partitions] * CLIENTS + [1]
            assert not [one for _, answer in answers for one in answer.topics[0].partitions if one.error_code]

    asyncio.run(main())


def test_wide_requests_that_one_address_keeps_waiting_for_long_leave_room_to_those_of_others() -> None:
    """A client says how long its DeleteRecords may take: its wide requests are held as long as that."""

    async def main() -> None:
        async with running_proxy(SETTINGS) as proxy:
            proxy.metadata.add_topic("wide", HELD)
            never = asyncio.Event()

            async def delete_records(*_: Any) -> int:
                await never.wait()
                return 0

            proxy.owner.delete_records = delete_records  # type: ignore[method-assign, assignment]
            parts = [{"partition_index": index, "offset": -1} for index in range(HELD // 5)]
            deletion = {"topics": [{"name": "wide", "partitions": parts}], "timeout_ms": 300_000}
            for _ in range(20):
                (await proxy.connect(local_addr=("127.0.0.2", 0))).send(21, 2, deletion)
            await turns(500)
            other = await proxy.connect()
            for partitions in (HELD // 5, HELD // 3):
                answer = await asyncio.wait_for(other.ask(2, 4, look_ups(partitions)), 20)
                assert len(answer.topics[0].partitions) == partitions

    asyncio.run(main())


def test_of_one_address_few_partitions_have_records_deleted_at_a_time() -> None:
    async def main() -> None:
        async with running_proxy() as proxy:
            proxy.metadata.add_topic("wide", 300)
            under_way = most = 0
            let_go = asyncio.Event()

            async def delete_records(*_: Any) -> int:
                nonlocal under_way, most
                under_way += 1
                most = max(most, under_way)
                await let_go.wait()
                under_way -= 1
                return 0

            proxy.owner.delete_records = delete_records  # type: ignore[method-assign, assignment]
            clients = [await proxy.connect() for _ in range(300)]
            for index, client in enumerate(clients):
                parts = [{"partition_index": index, "offset": -1}]
                client.send(21, 2, {"topics": [{"name": "wide", "partitions": parts}], "timeout_ms": 300_000})
            await until_async(lambda: under_way >= DELETIONS_PER_ADDRESS, "as many as there may be")
            await turns(200)
            other = await proxy.connect(local_addr=("127.0.0.2", 0))
            parts = [{"partition_index": 0, "offset": -1}]
            other.send(21, 2, {"topics": [{"name": "wide", "partitions": parts}], "timeout_ms": 300_000})
            await until_async(lambda: under_way > DELETIONS_PER_ADDRESS, "another address's")
            let_go.set()
            answers = await asyncio.gather(*(client.receive() for client in [*clients, other]))
            assert not any(answer.topics[0].partitions[0].error_code for _, answer in answers)
            assert most == DELETIONS_PER_ADDRESS + 1

    asyncio.run(main())
