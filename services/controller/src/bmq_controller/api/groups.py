"""`/v1/groups`: list, get, delete. They live on brokers; a group's id may have slashes."""

from bisect import bisect_right
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any, Final

from fastapi import FastAPI, Response

from bmq.fairness.made_for_all import MadeForAll
from bmq.fairness.turns import Places
from bmq.naming.lanes import lane_group
from bmq_controller.api.coordinators import (
    GroupListed,
    GroupOffset,
    delete_group,
    describe_group,
    fields_of,
    list_groups,
)
from bmq_controller.api.lists import listed
from bmq_controller.api.models import GroupOffsetView, GroupSummary, GroupView, MemberView
from bmq_controller.api.paging import LIMIT_MAX, Continue, Key, Limit, Page, as_json, ordered_page
from bmq_controller.api.parameters import MISSING, Address, InLane
from bmq_controller.api.sources import ApiSources, in_thread

GROUPS_AT_ONCE: Final = 2
"""A coordinator tells all offsets of a group, hundreds of thousands perhaps: so many groups are put together at a
time, and one for each address."""

GroupsByLane = dict[str, list[GroupListed]]
"""All groups, in the order of their names."""


def add_to(app: FastAPI, sources: ApiSources) -> None:
    """Adds the requests that list, show and delete consumer groups."""
    at_once = Places(GROUPS_AT_ONCE, leaving=True)
    everything = MadeForAll(lambda: _all_groups(sources), name="list groups")

    @app.get("/v1/groups", tags=["groups"], response_model=Page[GroupSummary])
    async def get_groups(limit: Limit = 100, after: Continue = None, lane: InLane = "") -> Response:
        """Consumer groups by name. A lane's group is called :LANE#NUMBER:GROUP here."""
        found = (await everything.get()).get(lane, [])
        return await listed(
            lambda: ordered_page(
                partial(_above, found),
                key=lambda one: (one.group_id,),
                view=as_json(_summary),
                limit=limit,
                after=after,
                kind="groups",
            )
        )

    @app.get("/v1/groups/{group_id:path}", tags=["groups"], responses=MISSING, response_model=GroupView)
    async def get_group(group_id: str, address: Address, limit: Limit = LIMIT_MAX, after: Continue = None) -> Response:
        """One group with its members, committed offsets by topic and partition, so many at a time, and their lag."""
        async with at_once.holding(party=address):
            found, offsets = await describe_group(sources, group_id, limit=limit, after=after)
            return Response(
                await in_thread(lambda: encode_group(group_id, found, offsets)), media_type="application/json"
            )

    @app.delete(
        "/v1/groups/{group_id:path}",
        tags=["groups"],
        status_code=204,
        responses={**MISSING, 409: {"description": "It has members"}},
    )
    async def remove_group(group_id: str) -> None:
        """Deletes a group that has no members, with its committed offsets."""
        await delete_group(sources, group_id)


def _lane_of(group_id: str) -> str:
    found = lane_group(group_id)
    return "" if found is None else found.lane


async def _all_groups(sources: ApiSources) -> GroupsByLane:
    found = await list_groups(sources)

    def by_lane() -> GroupsByLane:
        groups: GroupsByLane = {}
        for one in sorted(found):
            groups.setdefault(_lane_of(one.group_id), []).append(one)
        return groups

    return await in_thread(by_lane)


def _above(groups: list[GroupListed], start: Key | None) -> Iterator[GroupListed]:
    if start is None:
        return iter(groups)
    (last,) = start
    return islice(groups, bisect_right(groups, last, key=_name_of), None)


def _name_of(one: GroupListed) -> str:
    return one.group_id


def _summary(one: GroupListed) -> GroupSummary:
    return GroupSummary(group_id=one.group_id, state=one.state, protocol_type=one.protocol_type)


def encode_group(group_id: str, found: dict[str, Any], offsets: Page[GroupOffset]) -> bytes:
    """As JSON: of a group with thousands of members, longer than the event loop may wait."""
    return _group(group_id, found, offsets).model_dump_json(by_alias=True).encode()


def _group(group_id: str, found: dict[str, Any], offsets: Page[GroupOffset]) -> GroupView:
    return GroupView(
        group_id=group_id,
        state=found.get("group_state") or "",
        protocol_type=found.get("protocol_type") or "",
        protocol=found.get("protocol_data") or "",
        members=[_member(fields_of(one)) for one in found.get("members") or []],
        offsets=[
            GroupOffsetView(
                topic=one.topic,
                partition=one.partition,
                committed_offset=one.committed_offset,
                metadata=one.metadata,
                log_start=one.log_start,
                high_watermark=one.high_watermark,
                lag_records=one.lag_records,
                lag_seconds=one.lag_seconds,
            )
            for one in offsets.items
        ],
        lag_records=sum(one.lag_records or 0 for one in offsets.items),
        lag_seconds=max((one.lag_seconds or 0.0 for one in offsets.items), default=0.0),
        next_token=offsets.next_token,
    )


def _member(one: dict[str, Any]) -> MemberView:
    return MemberView(
        member_id=one["member_id"],
        instance_id=one.get("group_instance_id"),
        client_id=one.get("client_id") or "",
        client_host=one.get("client_host") or "",
    )
