"""`/v1/groups`: list, get, delete. They live on brokers; a group's id may have slashes."""

import asyncio
from io import BytesIO
from typing import Any, Final

from fastapi import FastAPI, Response
from pydantic import TypeAdapter

from bmq.grouping import in_groups
from bmq.lanes import lane_group
from bmq_controller.api.coordinators import GroupOffset, delete_group, describe_group, fields_of, list_groups
from bmq_controller.api.models import GroupOffsetView, GroupSummary, GroupView, MemberView
from bmq_controller.api.paging import Continue, Limit, Page, page
from bmq_controller.api.parameters import MISSING, InLane
from bmq_controller.api.sources import ApiSources, in_thread

GROUPS_AT_ONCE: Final = 2
"""Of one group may be hundreds of thousands of offsets: so many groups are put together at a time."""
OFFSETS_AT_ONCE: Final = 500
"""Of a group's offsets so many are encoded in one go."""
_NO_OFFSETS: Final = b'"offsets":[]'
"""In the JSON of a group: within a text quotation marks have a backslash."""
_OFFSETS: Final = TypeAdapter(list[GroupOffsetView])


def add_to(app: FastAPI, sources: ApiSources) -> None:
    """See the module."""
    at_once = asyncio.Semaphore(GROUPS_AT_ONCE)

    @app.get("/v1/groups", tags=["groups"])
    async def get_groups(limit: Limit = 100, after: Continue = None, lane: InLane = "") -> Page[GroupSummary]:
        """Consumer groups by name. A lane's group is called :LANE#NUMBER:GROUP here."""
        found = [one for one in await list_groups(sources) if _lane_of(one["group_id"]) == lane]
        return page(found, key=lambda one: (str(one["group_id"]),), view=_summary, limit=limit, after=after, kind="groups")

    @app.get("/v1/groups/{group_id:path}", tags=["groups"], responses=MISSING, response_model=GroupView)
    async def get_group(group_id: str) -> Response:
        """One group with its members, committed offsets and lag."""
        async with at_once:
            found, offsets = await describe_group(sources, group_id)
            return Response(await in_thread(lambda: encode_group(group_id, found, offsets)), media_type="application/json")

    @app.delete("/v1/groups/{group_id:path}", tags=["groups"], status_code=204, responses={**MISSING, 409: {"description": "It has members"}})
    async def remove_group(group_id: str) -> None:
        """Deletes a group that has no members, with its committed offsets."""
        await delete_group(sources, group_id)


def _lane_of(group_id: str) -> str:
    found = lane_group(group_id)
    return "" if found is None else found.lane


def _summary(one: dict[str, Any]) -> GroupSummary:
    return GroupSummary(group_id=one["group_id"], state=one.get("group_state") or "", protocol_type=one.get("protocol_type") or "")


def encode_group(group_id: str, found: dict[str, Any], offsets: list[GroupOffset]) -> bytes:
    """As JSON: of a group with thousands of offsets, longer than the event loop may wait.

    Some offsets at a time, also in a thread: while it encodes, pydantic keeps the interpreter from everybody else.
    """
    before, mark, after = encode_all(group_id, found, offsets, shown=[]).partition(_NO_OFFSETS)
    assert mark
    written = BytesIO()  # grows in place, where a join would copy all of it in one go
    written.write(before + _NO_OFFSETS[:-1])
    for number, some in enumerate(in_groups(offsets, OFFSETS_AT_ONCE)):
        written.write(b"," * (number > 0))
        written.write(memoryview(_OFFSETS.dump_json([_offset(one) for one in some]))[1:-1])
    written.write(_NO_OFFSETS[-1:] + after)
    return written.getvalue()


def encode_all(group_id: str, found: dict[str, Any], offsets: list[GroupOffset], *, shown: list[GroupOffset]) -> bytes:
    """A group that shows so many of its offsets, at once."""
    return _group(group_id, found, offsets, shown).model_dump_json(by_alias=True).encode()


def _group(group_id: str, found: dict[str, Any], offsets: list[GroupOffset], shown: list[GroupOffset]) -> GroupView:
    return GroupView(
        group_id=group_id,
        state=found.get("group_state") or "",
        protocol_type=found.get("protocol_type") or "",
        protocol=found.get("protocol_data") or "",
        members=[_member(fields_of(one)) for one in found.get("members") or []],
        offsets=[_offset(one) for one in shown],
        lag_records=sum(one.lag_records or 0 for one in offsets),
        lag_seconds=max((one.lag_seconds or 0.0 for one in offsets), default=0.0),
    )


def _offset(one: GroupOffset) -> GroupOffsetView:
    return GroupOffsetView(
        topic=one.topic,
        partition=one.partition,
        committed_offset=one.committed_offset,
        metadata=one.metadata,
        log_start=one.log_start,
        high_watermark=one.high_watermark,
        lag_records=one.lag_records,
        lag_seconds=one.lag_seconds,
    )


def _member(one: dict[str, Any]) -> MemberView:
    return MemberView(
        member_id=one["member_id"],
        instance_id=one.get("group_instance_id"),
        client_id=one.get("client_id") or "",
        client_host=one.get("client_host") or "",
    )
