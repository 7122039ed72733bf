"""A coordinator's list of groups in pages, as another node asks for it."""

from typing import Any

import pytest
from group_shard import LIST, Coordinator, coordinator

from bmq.errors import InvalidRequest
from bmq.roles.group_pages import AFTER, GroupPage, asking, joined
from bmq.roles.owner import Caller
from bmq.wire.message import Message
from bmq_broker.handlers import k16_list_groups
from bmq_broker.handlers.group_calls import handle_group_call
from bmq_sim.loop import on_virtual_time

ALL = Message(states_filter=[], types_filter=[])
CALLER = Caller(client_id="c", client_host="/10.0.0.1")


async def page(one: Coordinator, after: str) -> dict[str, Any]:
    return await handle_group_call(one.shard, LIST, asking(ALL, after), CALLER)


@on_virtual_time
async def test_all_pages_together_have_each_group_once_and_no_page_has_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(k16_list_groups, "_PAGE_GROUPS", 20)
    monkeypatch.setattr(k16_list_groups, "_IDS_PER_TURN", 30)
    async with coordinator() as one:
        names = {f"g{number}" for number in range(200)}
        for name in sorted(names):
            await one.commit(1, group_id=name)
        pages = [await page(one, "")]
        while pages[-1][AFTER]:
            await one.commit(1, group_id=f"new-{len(pages)}")
            pages.append(await page(one, pages[-1][AFTER]))
        found = [group["group_id"] for group in joined(pages)["groups"]]
        assert len(found) == len(set(found))
        assert names <= set(found) <= names | {f"new-{number}" for number in range(1, 20)}
        assert len(pages) == 11
        assert max(len(one["groups"]) for one in pages) < 60


@on_virtual_time
async def test_who_asks_for_no_page_gets_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(k16_list_groups, "_PAGE_GROUPS", 2)
    async with coordinator() as one:
        for number in range(10):
            await one.commit(1, group_id=f"g{number}")
        reply = await handle_group_call(one.shard, LIST, ALL, CALLER)
        assert len(reply["groups"]) == 10
        assert AFTER not in reply


@on_virtual_time
async def test_groups_with_long_names_are_fewer_on_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(k16_list_groups, "_PAGE_CHARACTERS", 4_000)
    async with coordinator() as one:
        for number in range(20):
            await one.commit(1, group_id=f"{number:01000d}")
        assert GroupPage.parse((await page(one, ""))[AFTER]).count == 6


@on_virtual_time
async def test_what_is_no_page_is_an_error() -> None:
    for text in ("x", "1/1/s", "-1/2/s", "0/2/", "1", "٣/٤/s"):
        with pytest.raises(InvalidRequest):
            GroupPage.parse(text)
    async with coordinator() as one:
        assert (await page(one, "no page"))["error_code"] == 42
