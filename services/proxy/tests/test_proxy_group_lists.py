"""Lists of groups: nobody knows how much coordinators will say, so few are asked for at a time."""

import asyncio
from typing import Any

from one_connection import run, until
from proxy_in_memory import Client, Running

from bmq.naming.names import CONSUMER_OFFSETS
from bmq.wire.apis import ApiKey
from bmq_proxy.bulk import LISTS_AT_ONCE

ASKING = 12
LIST: dict[str, Any] = {"states_filter": [], "types_filter": []}
GROUP = {"group_id": "g", "protocol_type": "", "group_state": "Empty", "group_type": "Classic"}


def test_however_many_ask_coordinators_say_all_that_they_have_few_times_at_once() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.metadata.add_topic(CONSUMER_OFFSETS, 1)
        asked, most, may_answer = 0, 0, asyncio.Event()

        async def group_call(*_: Any) -> dict[str, Any]:
            nonlocal asked, most
            asked += 1
            most = max(most, asked)
            await may_answer.wait()
            asked -= 1
            return {"error_code": 0, "groups": [GROUP]}

        proxy.owner.group_call = group_call  # type: ignore[method-assign]
        clients = [await proxy.connect() for _ in range(ASKING)]
        for one in clients:
            one.send(ApiKey.LIST_GROUPS, 4, LIST)
        await until(lambda: asked >= LISTS_AT_ONCE)
        for _ in range(50):
            await asyncio.sleep(0)
        may_answer.set()
        for one in clients:
            _, answered = await one.receive()
            assert [group.group_id for group in answered.groups] == ["g"]
        assert most == LISTS_AT_ONCE

    run(test)
