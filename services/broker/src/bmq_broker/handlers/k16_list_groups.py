"""ListGroups, versions 0 to 5: the groups of one coordinator; who serves clients joins those of all. Nothing is
missing.

Between nodes a long list travels in pages (`bmq.roles.group_pages`). Who asks for none gets all at once.
"""

import asyncio
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final

from bmq.fairness.grouping import in_groups
from bmq.roles.group_pages import AFTER, GroupPage
from bmq.roles.owner import Caller
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq_broker.coordinators.groups.admin import listing
from bmq_broker.coordinators.groups.machine import GroupMachine
from bmq_broker.coordinators.groups.service import GroupCoordinatorShard

_TYPE = "Classic"
_PAGE_GROUPS: Final = 5_000
_PAGE_CHARACTERS: Final = 512 * 1024
"""What a page has: a few ms for either side, and far less than a frame may have."""
_IDS_PER_TURN: Final = 5_000


async def handle(shard: GroupCoordinatorShard, request: Message, caller: Caller) -> dict[str, Any]:
    """Filters compare without case; an empty one lets everything through, an unknown word matches nothing."""
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}

    def query(machine: GroupMachine, group_id: str) -> dict[str, Any] | None:
        group = listing(machine, group_id)
        if group is None or (states and group.state.value.lower() not in states):
            return None
        return {
            "group_id": group.group_id,
            "protocol_type": group.protocol_type,
            "group_state": group.state.value,
            "group_type": _TYPE,
        }

    group_ids: Sequence[str] = [] if types and _TYPE.lower() not in types else shard.group_ids()
    reply: dict[str, Any] = {"throttle_time_ms": 0, "error_code": ErrorCode.none}
    after = vars(request).get(AFTER)
    if after is not None:
        page = GroupPage.parse(after) if after else _first_page(shard, group_ids)
        group_ids = await _on_page(group_ids, page)
        reply[AFTER] = page.next
    found = await shard.look_each(group_ids, query, party=caller.client_host)
    return {**reply, "groups": [group for group in found if group is not None]}


def failed(request: Message, error: ErrorCode) -> dict[str, Any]:
    """The reply of a coordinator that cannot serve it."""
    return {"throttle_time_ms": 0, "error_code": error, "groups": []}


def _first_page(shard: GroupCoordinatorShard, group_ids: Sequence[str]) -> GroupPage:
    characters = sum(map(len, group_ids))
    return GroupPage(0, 1 + max(len(group_ids) // _PAGE_GROUPS, characters // _PAGE_CHARACTERS), shard.rng.uuid().hex)


async def _on_page(group_ids: Sequence[str], page: GroupPage) -> Sequence[str]:
    """Each group is on one page by a hash, which nobody who names groups can foresee: those that come and go meanwhile
    move no other one.
    """
    if page.count == 1:
        return group_ids
    found: list[str] = []
    for some in in_groups(group_ids, _IDS_PER_TURN):
        found += [one for one in some if _page_of(one, page) == page.number]
        await asyncio.sleep(0)
    return found


def _page_of(group_id: str, page: GroupPage) -> int:
    data = group_id.encode(errors="surrogatepass")
    return int.from_bytes(blake2b(data, digest_size=8, key=page.salt.encode()).digest(), "big") % page.count
