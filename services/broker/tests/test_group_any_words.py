"""Any text and any number, however wrong, in any request about groups: it is refused alone, and the groups beside it
never hear of it.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from group_log import Disk
from group_shard import (
    BEAT,
    COMMIT,
    DELETE,
    DESCRIBE,
    FETCH,
    JOIN,
    LEAVE,
    LIST,
    NEWEST,
    OFFSET_DELETE,
    SYNC,
    Coordinator,
    Topics,
    coordinator,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from bmq.roles.owner import Caller
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq.wire.messages import decode_request, encode_request
from bmq_broker.coordinators.groups import offsets
from bmq_broker.coordinators.groups.machine import Effects, GroupMachine
from bmq_broker.coordinators.groups.offsets import Place
from bmq_broker.coordinators.groups.records import GroupKey, OffsetKey
from bmq_broker.coordinators.groups.requests import Now
from bmq_broker.coordinators.groups.snapshot import decode_state, encode_state
from bmq_broker.handlers.group_calls import handle_group_call
from bmq_sim.loop import on_virtual_time, run

HALF = "\udfff"
LONG = "\U0001f600" * 7_999
EVIL = ("evil", "evil", "ogre", "", ":dev#1:g", LONG)
INT32 = (0, 1, -1, 2, 3, 6_000, 10_000, 30_000, 1_800_000, 2**31 - 1, -(2**31))
INT64 = (0, 1, -1, 2**63 - 1, 2**63 - 1_000, -(2**63), 2**62)
BYTES = (b"", b"\0\0\0\0\0\0", b"\0\1\0\0\0\1\0\1t\0\0\0\0", b"x" * 3_000, b"\xff" * 9)

groups = st.sampled_from(EVIL)
int32 = st.one_of(st.sampled_from(INT32), st.integers(-(2**31), 2**31 - 1))
int64 = st.one_of(st.sampled_from(INT64), st.integers(-(2**63), 2**63 - 1))
texts = st.one_of(
    st.sampled_from(("", "t", "u", "consumer", "range", "sticky", "i", LONG, "x" * 32_000, "\0")), st.text(max_size=3)
)
members = st.one_of(texts, st.integers(0, 5))
"""A number stands for one of the ids that somebody was given."""
instances = st.one_of(st.none(), st.sampled_from(("i", "j")), texts)
topic_names = st.sampled_from(("t", "u", "nope", ""))
blobs = st.sampled_from(BYTES)


def several(of: st.SearchStrategy[Any], most: int = 2) -> st.SearchStrategy[list[Any]]:
    return st.lists(of, max_size=most)


def one_of_each(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(fields)


committed = one_of_each(
    partition_index=int32,
    committed_offset=int64,
    committed_leader_epoch=int32,
    committed_metadata=st.one_of(st.none(), texts),
)
FIELDS: dict[int, st.SearchStrategy[dict[str, Any]]] = {
    COMMIT: one_of_each(
        group_id=groups,
        generation_id_or_member_epoch=int32,
        member_id=members,
        group_instance_id=instances,
        retention_time_ms=int64,
        topics=several(
            one_of_each(name=topic_names, topic_id=st.just(Topics("t").ids["t"]), partitions=several(committed, 3))
        ),
    ),
    FETCH: one_of_each(
        group_id=groups,
        topics=st.one_of(st.none(), several(one_of_each(name=topic_names, partition_indexes=several(int32)))),
        groups=several(
            one_of_each(
                group_id=groups,
                member_id=texts,
                member_epoch=int32,
                topics=st.one_of(
                    st.none(),
                    several(
                        one_of_each(
                            name=topic_names, topic_id=st.just(Topics("t").ids["t"]), partition_indexes=several(int32)
                        )
                    ),
                ),
            )
        ),
        require_stable=st.booleans(),
    ),
    JOIN: one_of_each(
        group_id=groups,
        session_timeout_ms=st.one_of(st.sampled_from((6_000, 10_000, 1_800_000)), int32),
        rebalance_timeout_ms=int32,
        member_id=members,
        group_instance_id=instances,
        protocol_type=st.one_of(st.just("consumer"), texts),
        protocols=several(one_of_each(name=st.one_of(st.just("range"), texts), metadata=blobs)),
        reason=st.one_of(st.none(), texts),
    ),
    BEAT: one_of_each(group_id=groups, generation_id=int32, member_id=members, group_instance_id=instances),
    LEAVE: one_of_each(
        group_id=groups,
        member_id=members,
        members=several(one_of_each(member_id=members, group_instance_id=instances, reason=st.none())),
    ),
    SYNC: one_of_each(
        group_id=groups,
        generation_id=st.one_of(st.integers(0, 3), int32),
        member_id=members,
        group_instance_id=instances,
        protocol_type=st.one_of(st.none(), st.just("consumer"), texts),
        protocol_name=st.one_of(st.none(), st.just("range"), texts),
        assignments=several(one_of_each(member_id=members, assignment=blobs)),
    ),
    DESCRIBE: one_of_each(groups=several(groups), include_authorized_operations=st.booleans()),
    LIST: one_of_each(states_filter=several(texts), types_filter=several(texts)),
    DELETE: one_of_each(groups_names=several(groups)),
    OFFSET_DELETE: one_of_each(
        group_id=groups,
        topics=several(one_of_each(name=topic_names, partitions=several(one_of_each(partition_index=int32)))),
    ),
}
WEIGHTED = (*FIELDS, JOIN, JOIN, JOIN, SYNC, SYNC, COMMIT, LEAVE)
VERSIONS = {COMMIT: 2, FETCH: 1}
asked = st.sampled_from(WEIGHTED).flatmap(
    lambda key: st.tuples(
        st.just(key),
        st.integers(VERSIONS.get(key, 0), NEWEST[key]),
        FIELDS[key],
        st.sampled_from((0.0, 0.0, 0.01, 1.0, 7.0, 40.0)),
        st.one_of(st.none(), st.none(), st.none(), st.integers(0, 20)),
    )
)
"""Key, version, fields, how long until the next one, and which of its texts is no UTF-8 (as an internal caller's might
be)."""


def with_ids(value: Any, ids: list[str]) -> Any:
    """The fields with ids for the numbers that stand for them."""
    if isinstance(value, dict):
        return {
            name: ids[inner % len(ids)] if name == "member_id" and isinstance(inner, int) else with_ids(inner, ids)
            for name, inner in value.items()
        }
    return [with_ids(inner, ids) for inner in value] if isinstance(value, list) else value


def texts_in(message: Message) -> Iterator[tuple[Message, str]]:
    for name, value in vars(message).items():
        if isinstance(value, str):
            yield message, name
        for inner in value if isinstance(value, list) else ():
            if isinstance(inner, Message):
                yield from texts_in(inner)


async def send(one: Coordinator, asked: tuple[int, int, dict[str, Any], float, int | None], ids: list[str]) -> None:
    key, version, fields, _, half = asked
    request = decode_request(key, version, encode_request(key, version, with_ids(fields, ids)))
    places = list(texts_in(request))
    if half is not None and places:
        message, name = places[half % len(places)]
        setattr(message, name, getattr(message, name)[:10] + HALF)
    reply = await handle_group_call(
        one.shard, key, request, Caller(client_id=LONG[:8_000], client_host="/10.0.0.1", api_version=version)
    )
    if key == JOIN and isinstance(reply, dict) and reply["member_id"] and HALF not in reply["member_id"]:
        ids.append(reply["member_id"])


@settings(max_examples=25, deadline=None)
@given(requests=st.lists(asked, min_size=1, max_size=25), small=st.booleans())
def test_no_words_of_a_client_end_a_coordinator_and_what_it_stores_can_be_loaded(
    requests: list[Any], small: bool
) -> None:
    async def main() -> None:
        disk, topics, ids = Disk(), Topics("t", "u"), ["nobody"]
        limits = {"group_size_max": 2, "record_size_bytes_max": 2_000} if small else {}
        async with coordinator(disk, topics, snapshot_record_interval=5, **limits) as one:
            innocent = await one.single_member()
            tasks = []
            for number, request in enumerate(requests):
                tasks.append(asyncio.ensure_future(send(one, request, ids)))
                left_s = request[3]
                while left_s > 0:
                    await asyncio.sleep(min(left_s, 5.0))
                    left_s -= 5.0
                    assert await one.beat(innocent, 1) == ErrorCode.none
                assert await one.commit(number, generation_id_or_member_epoch=1, member_id=innocent) == ErrorCode.none
            assert one.failures == []
            assert await one.fetch() == len(requests) - 1
            for task in tasks:
                if not task.done():
                    task.cancel()
            for outcome in await asyncio.gather(*tasks, return_exceptions=True):
                assert outcome is None or isinstance(outcome, asyncio.CancelledError), repr(outcome)
            machine = one.shard._machine
            assert machine is not None
            live = machine.durable.copy()
            assert decode_state(encode_state(live)) == live
            await asyncio.sleep(0.1)
        async with coordinator(disk, topics) as again:
            loaded = again.shard._machine
            assert loaded is not None
            assert loaded.durable.offsets == live.offsets
            assert loaded.durable.groups.keys() == live.groups.keys()

    run(main())


@pytest.mark.parametrize("retention_ms", [2**63 - 1, 2**63 - 1_700_000_000_000])
@on_virtual_time
async def test_an_offset_that_is_to_be_kept_for_ever_is_kept_and_nobody_beside_it_is_disturbed(
    retention_ms: int,
) -> None:
    disk = Disk()
    async with coordinator(disk) as one:
        member = await one.single_member()
        topics = [
            {"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}]}
        ]
        kept = await one.ask(
            COMMIT,
            3,
            group_id="old",
            generation_id_or_member_epoch=-1,
            member_id="",
            retention_time_ms=retention_ms,
            topics=topics,
        )
        assert kept.topics[0].partitions[0].error_code == 0
        assert await one.beat(member, 1) == ErrorCode.none
        assert one.failures == []
    async with coordinator(disk) as again:
        await asyncio.sleep(8 * 24 * 3_600)
        assert await again.fetch(group_id="old") == 7


@on_virtual_time
async def test_a_commit_that_cannot_be_stored_leaves_no_trace_in_what_is_stored() -> None:
    async with coordinator() as one:
        member = await one.single_member()
        assert await one.commit(3, generation_id_or_member_epoch=1, member_id=member) == ErrorCode.none
        request = decode_request(
            COMMIT,
            8,
            encode_request(
                COMMIT,
                8,
                {
                    "group_id": "g",
                    "generation_id_or_member_epoch": 1,
                    "member_id": member,
                    "topics": [
                        {
                            "name": "t",
                            "partitions": [
                                {"partition_index": index, "committed_offset": 9, "committed_metadata": ""}
                                for index in (0, 1)
                            ],
                        }
                    ],
                },
            ),
        )
        request.topics[0].partitions[1].committed_metadata = HALF
        reply = await handle_group_call(
            one.shard, COMMIT, request, Caller(client_id="c", client_host="/h", api_version=8)
        )
        assert [part["error_code"] for part in reply["topics"][0]["partitions"]] == [ErrorCode.invalid_request] * 2
        assert await one.fetch() == 3, "the partition before it in the request was taken back with it"
        assert one.failures == []
        assert await one.beat(member, 1) == ErrorCode.none, "the group is as its log says: its member is still there"
        assert await one.commit(4, generation_id_or_member_epoch=1, member_id=member) == ErrorCode.none


@on_virtual_time
async def test_a_step_that_breaks_down_half_way_costs_its_own_group_one_rebalance_and_no_other_group_anything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = Disk()
    async with coordinator(disk) as one:
        other = await one.single_member()
        joined = await one.ask(
            JOIN,
            3,
            group_id="h",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=30_000,
            member_id="",
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b""}],
        )
        emit = GroupMachine.emit

        def broken(machine: GroupMachine, effects: Effects, key: Any, value: Any, **whose: Any) -> None:
            emit(machine, effects, key, value, **whose)
            if key == GroupKey("h"):
                raise ZeroDivisionError

        monkeypatch.setattr(GroupMachine, "emit", broken)
        sync = {"group_id": "h", "generation_id": joined.generation_id, "member_id": joined.member_id}
        with pytest.raises(ZeroDivisionError):
            await one.ask(SYNC, 3, **sync, assignments=[{"member_id": joined.member_id, "assignment": b"a"}])
        monkeypatch.undo()
        assert one.failures == []
        assert ErrorCode((await one.ask(SYNC, 3, **sync, assignments=[])).error_code) == ErrorCode.unknown_member_id, (
            "it joins again"
        )
        assert await one.beat(other, 1) == ErrorCode.none
        assert [value for key, value in disk.records() if key is not None and b"h" in key] == []
        machine = one.shard._machine
        assert machine is not None
        assert "h" not in machine.durable.groups
        assert len([key for key in machine.timers._deadlines if key.group_id == "h"]) == 0


@on_virtual_time
async def test_who_waits_in_a_group_that_is_made_anew_is_told_to_find_its_coordinator_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with coordinator(initial_rebalance_delay_ms=3_000) as one:
        waiting = asyncio.ensure_future(one.join(version=3))
        await asyncio.sleep(0.1)
        monkeypatch.setattr("bmq_broker.coordinators.groups.membership.rebalance_or_complete", lambda turn: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            await one.join(version=3)
        monkeypatch.undo()
        assert ErrorCode((await waiting).error_code) == ErrorCode.not_coordinator
        assert (await one.join(version=3)).error_code == 0
        assert one.failures == []


@on_virtual_time
async def test_a_deadline_that_breaks_down_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async with coordinator() as one:
        await one.single_member()
        expire = offsets.expire
        met = []

        def broken(machine: GroupMachine, now: Now, group_id: str, places: Sequence[Place]) -> Effects:
            met.append(group_id)
            if group_id == "g":
                raise ZeroDivisionError
            return expire(machine, now, group_id, places)

        monkeypatch.setattr("bmq_broker.coordinators.groups.timeouts._session_ended", lambda turn, member_id: 1 // 0)
        monkeypatch.setattr("bmq_broker.coordinators.groups.service.offsets.expire", broken)
        assert await one.commit(1, group_id="x") == ErrorCode.none
        await asyncio.sleep(3 * one.shard.settings.offsets_check_interval_ms / 1_000)
        assert met.count("x") >= 2, "looked at in every round though the one before it broke down"
        assert one.failures == []
        assert await one.commit(2, group_id="x") == ErrorCode.none


def test_the_log_state_is_taken_back_to_what_it_was() -> None:
    from bmq_broker.coordinators.groups.settings import GroupSettings
    from bmq_broker.coordinators.groups.taking_back import take_back

    machine = GroupMachine(GroupSettings())
    value = offsets.OffsetValue(5)
    machine.emit(Effects(), OffsetKey("g", "t", 0), value)
    machine.begin()
    for key, new in (
        (OffsetKey("g", "t", 0), offsets.OffsetValue(6)),
        (OffsetKey("g", "t", 1), value),
        (OffsetKey("g", "t", 0), None),
        (OffsetKey("h", "t", 0), value),
    ):
        machine.emit(Effects(), key, new, address="/h")
    assert machine._founders == {"h": "/h"}
    assert take_back(machine, Now(0, 0)) == Effects()
    assert not machine._founders and not machine.durable.tally.by_address
    assert machine.durable.offsets == {"g": {("t", 0): value}}
