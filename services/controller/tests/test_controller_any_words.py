"""Any text and any number, however wrong, in any operation of an administrator: it is refused alone, and nobody else
hears of it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leading_controller import loaded, registration, start

from bmq.config.topic_config import TOPIC_KEYS
from bmq.errors import BmqError, ControllerUnavailable, InvalidRequest
from bmq.metadata.codec import decode_records, encode_records
from bmq.metadata.records import ConfigsChanged, LaneDeclared, ProducerIdsAllocated, TopicCreated
from bmq.metadata.storable import check_storable
from bmq.roles.controller import ConfigChange, ConfigResource, NewTopic, Reassignment
from bmq.values import NodeId, TopicId, TopicPartition
from bmq_controller.controller import LeadingController
from bmq_controller.machine.lanes import LaneWanted
from bmq_sim.loop import run
from bmq_sim.store import SimStore

HALF = "\ud800"
texts = st.one_of(
    st.text(st.characters(), max_size=5),
    st.text(st.characters(categories=["Cs"]), min_size=1, max_size=3),
    st.sampled_from(
        [
            "a",
            "b",
            "dev",
            "",
            "dev:a",
            "__consumer_offsets",
            "*",
            "true",
            "1e400",
            "nan",
            "delete",
            "9" * 5_000,
            "x" * 70_000,
            "\0",
        ]
    ),
)
numbers = st.one_of(
    st.integers(-5, 5),
    st.integers(),
    st.sampled_from([2**31, 2**63 - 1, 2**63, 2**64, 2**64 + 1, -(2**63), -(2**63) - 1, 10**400]),
)
names = st.one_of(texts, st.sampled_from(["a", "b"]))
keys = st.one_of(texts, st.sampled_from(sorted(TOPIC_KEYS)))
values = st.one_of(st.none(), texts, numbers.map(str))
Request = Callable[[LeadingController], Awaitable[Any]]

requests: st.SearchStrategy[Request] = st.one_of(
    st.builds(
        lambda name, partitions, factor, configs, lane: (
            lambda to: to.create_topics(
                [NewTopic(name=name, partitions=partitions, replication_factor=factor, configs=configs, lane=lane)]
            )
        ),
        names,
        numbers,
        numbers,
        st.dictionaries(keys, values, max_size=2),
        texts,
    ),
    st.builds(lambda name, total: lambda to: to.create_partitions(name, total), names, numbers),
    st.builds(
        lambda kind, name, changes: lambda to: to.alter_configs(ConfigResource(kind=kind, name=name), changes),
        st.one_of(st.sampled_from(["topic", "broker", "group"]), texts),
        names,
        st.lists(
            st.builds(
                ConfigChange,
                name=keys,
                operation=st.one_of(st.sampled_from(["set", "delete", "append", "subtract"]), texts),
                value=values,
            ),
            max_size=2,
        ),
    ),
    st.builds(
        lambda kind, name, configs: lambda to: to.replace_configs(ConfigResource(kind=kind, name=name), configs),
        st.sampled_from(["topic", "broker"]),
        names,
        st.dictionaries(keys, values, max_size=2),
    ),
    st.builds(
        lambda name, ttl, own, reads, rate: (
            lambda to: to.create_lane(
                LaneWanted(name=name, ttl_s=ttl, own_brokers=own, reads_base=reads, reads_base_bytes_per_s=rate)
            )
        ),
        texts,
        numbers,
        st.booleans(),
        st.lists(texts, max_size=2).map(tuple),
        numbers,
    ),
    st.builds(
        lambda reads, rate: (
            lambda to: to.change_lane(LaneWanted(name="dev", reads_base=reads, reads_base_bytes_per_s=rate))
        ),
        st.lists(texts, max_size=2).map(tuple),
        numbers,
    ),
    st.builds(lambda name: lambda to: to.delete_lane(name), texts.filter(lambda name: name != "dev")),
    st.builds(lambda count: lambda to: to.allocate_producer_ids(count), numbers),
    st.builds(
        lambda partition, to_node: (
            lambda to: to.reassign(
                [Reassignment(tp=TopicPartition(TopicId(UUID(int=3)), partition), to=to_node and NodeId(to_node))]
            )
        ),
        numbers,
        st.one_of(st.none(), numbers),
    ),
    st.builds(lambda node, whether: lambda to: to.cordon(NodeId(node), whether), numbers, st.booleans()),
    st.builds(lambda node: lambda to: to.drain(NodeId(node)), numbers.filter(lambda node: node != 1)),
    st.builds(
        lambda partition, node: lambda to: to.move(TopicPartition(TopicId(UUID(int=3)), partition), NodeId(node)),
        numbers,
        numbers,
    ),
)


@settings(max_examples=25, deadline=None)
@given(st.lists(requests, min_size=1, max_size=8))
def test_no_words_of_an_administrator_depose_the_controller_and_others_are_served_beside_them(
    asked: list[Request],
) -> None:
    async def main() -> None:
        store = SimStore()
        role = await start(store)
        await role.controller.register(registration())
        await role.controller.create_topics([NewTopic(name="a")])
        await role.controller.create_lane(LaneWanted(name="dev"))
        beside = [role.controller.create_topics([NewTopic(name=f"beside-{number}")]) for number in range(len(asked))]
        outcomes = await asyncio.gather(
            *(request(role.controller) for request in asked), *beside, return_exceptions=True
        )
        for outcome in outcomes[: len(asked)]:
            assert not isinstance(outcome, BaseException) or isinstance(outcome, BmqError), repr(outcome)
            assert not isinstance(outcome, ControllerUnavailable), f"it is refused for what it says: {outcome}"
        assert all(isinstance(outcome, list) for outcome in outcomes[len(asked) :]), outcomes[len(asked) :]
        assert not role.deposed.done()
        assert await loaded(store) == role.metadata.image, "a reader reads what was committed"
        await role.stop()

    run(main())


def test_half_a_character_is_refused_by_its_field_and_the_operations_of_the_same_entry_are_committed() -> None:
    async def main() -> None:
        store = SimStore()
        role = await start(store)
        await role.controller.create_topics([NewTopic(name="a")])
        key = "follower.replication.throttled.replicas"
        outcomes = await asyncio.gather(
            role.controller.create_topics([NewTopic(name="b")]),
            role.controller.alter_configs(
                ConfigResource(kind="topic", name="a"), [ConfigChange(name=key, operation="set", value=HALF)]
            ),
            role.controller.create_lane(
                LaneWanted(name="dev", reads_base=("orders", f"x{HALF}"), reads_base_bytes_per_s=1 << 20)
            ),
            role.controller.create_topics([NewTopic(name="c")]),
            return_exceptions=True,
        )
        assert isinstance(outcomes[1], InvalidRequest)
        assert f"changes.{key} has half a character (U+D800" in str(outcomes[1])
        assert isinstance(outcomes[2], InvalidRequest)
        assert "reads_base[1] has half a character (U+D800, a lone surrogate) at position 1" in str(outcomes[2])
        assert set((await loaded(store)).topic_ids) == {"a", "b", "c"}
        assert not role.deposed.done()
        await role.stop()

    run(main())


@pytest.mark.parametrize(
    ("record", "field"),
    [
        (ConfigsChanged(kind="topic", name="x", changes={HALF: "5"}), "changes.\\ud800 (its name)"),
        (
            TopicCreated(topic_id=UUID(int=1), name=f"a{HALF}", partitions=1, leader_epoch=0),
            "name has half a character",
        ),
        (LaneDeclared(name="dev", number=2**64, created_ms=0), "number is beyond 64 bits"),
        (ProducerIdsAllocated(next_producer_id=-(2**63) - 1), "next_producer_id is beyond 64 bits"),
        (ConfigsChanged(kind="topic", name="x", changes={"a": 5}), "cannot be stored"),  # type: ignore[dict-item]
    ],
)
def test_a_record_that_cannot_be_read_again_is_refused_by_the_name_of_its_field(record: Any, field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_storable([record])
    assert field in str(refused.value)
    str(refused.value).encode()  # the refusal itself can be sent


@given(st.dictionaries(st.text(), st.one_of(st.none(), st.text()), max_size=4))
def test_what_is_called_storable_is_read_as_it_was_written(changes: dict[str, str | None]) -> None:
    record = ConfigsChanged(kind="topic", name="x", changes=changes)
    check_storable([record])
    assert decode_records(encode_records([record]), what="records") == [record]
