"""Lanes as the controller decides on them: what they are made of, what goes with them, and when they end."""

import asyncio

import pytest
from controller_committed import Committed

from bmq.errors import ControllerUnavailable, InvalidRequest, LaneExists, PolicyViolation, UnknownLane
from bmq.metadata.image import HAS_READ_MAX, Image
from bmq.metadata.invariants import InvariantBroken, check_step
from bmq.roles.controller import NewTopic
from bmq.values import NodeId
from bmq_controller.api.own_pages import unowned_of_lanes
from bmq_controller.machine.lanes import LaneWanted, change_lane, create_lane, delete_expired, delete_lanes, expired
from bmq_controller.machine.nodes import report_stopped
from bmq_controller.main import start_controller
from bmq_sim.clock import SimClock, SimRng
from bmq_sim.loop import on_virtual_time
from bmq_sim.store import SimStore

DAY_MS = 86_400_000


def with_lane(cluster: Committed, **wanted: object) -> None:
    cluster.commit(create_lane(cluster.image, 1_000, LaneWanted(name="dev", **wanted)).records)  # type: ignore[arg-type]


def test_a_lanes_topic_is_like_the_bases_in_what_is_not_said() -> None:
    cluster = Committed(brokers=2)
    cluster.create(NewTopic(name="orders", partitions=5, configs={"retention.ms": "7"}))
    with_lane(cluster)
    cluster.create(NewTopic(name="orders", lane="dev"), NewTopic(name="alone", lane="dev"))
    topic = cluster.image.topic("dev:orders")
    base = cluster.image.topic("orders")
    assert topic is not None
    assert base is not None
    assert (len(topic.partitions), topic.configs) == (5, {"retention.ms": "7"})
    assert min(meta.leader_epoch for meta in topic.partitions) > max(meta.leader_epoch for meta in base.partitions)
    assert [
        len(cluster.image.topics[cluster.image.topic_ids[name]].partitions) for name in ("orders", "dev:alone")
    ] == [5, 1]


def test_what_is_said_of_a_lanes_topic_goes_before_what_the_base_has() -> None:
    cluster = Committed(brokers=1)
    cluster.create(NewTopic(name="orders", partitions=5, configs={"retention.ms": "7", "segment.ms": "9"}))
    with_lane(cluster)
    cluster.create(NewTopic(name="orders", lane="dev", partitions=2, configs={"retention.ms": "8"}))
    topic = cluster.image.topic("dev:orders")
    assert topic is not None
    assert (len(topic.partitions), topic.configs) == (2, {"retention.ms": "8", "segment.ms": "9"})


SEARCHED_FOR_MUCH = tuple(("*" + "a*" * (60 + n) + f"b{n}*")[:249] for n in range(64))


def test_patterns_have_little_that_is_searched_for_in_each_name() -> None:
    """64 that had all that fits took half a ms for a name, and a proxy stood still for so long with each topic."""
    cluster = Committed(brokers=1)
    with pytest.raises(InvalidRequest, match="texts between two stars"):
        with_lane(cluster, reads_base=SEARCHED_FOR_MUCH, reads_base_bytes_per_s=1_024)
    beginnings = tuple(f"{'a' * 240}{n}*" for n in range(64))
    with_lane(cluster, reads_base=beginnings, reads_base_bytes_per_s=1_024)
    with pytest.raises(InvalidRequest, match="texts between two stars"):
        change_lane(
            cluster.image,
            1_000,
            LaneWanted(name="dev", reads_base=SEARCHED_FOR_MUCH[:2], reads_base_bytes_per_s=1_024),
        )


def test_a_lane_cannot_collect_what_is_searched_for_by_changes() -> None:
    cluster = Committed(brokers=1)
    with_lane(cluster, reads_base=(f"*{'a' * 240}*",), reads_base_bytes_per_s=1_024)
    other = LaneWanted(name="dev", reads_base=(f"*{'b' * 240}*",), reads_base_bytes_per_s=1_024)
    with pytest.raises(InvalidRequest, match="could read so far"):
        change_lane(cluster.image, 1_000, other)
    slower = LaneWanted(name="dev", reads_base=(f"*{'a' * 240}*",), reads_base_bytes_per_s=2_048)
    cluster.commit(change_lane(cluster.image, 1_000, slower).records)


def test_nobody_makes_a_topic_of_a_lane_without_the_lane_or_by_its_stored_name() -> None:
    cluster = Committed(brokers=1)
    with_lane(cluster)
    unknown, stored, internal = cluster.create(
        NewTopic(name="a", lane="other"), NewTopic(name="dev:a"), NewTopic(name="__consumer_offsets", lane="dev")
    )
    assert isinstance(unknown, UnknownLane)
    assert "illegal" in str(stored)
    assert isinstance(internal, PolicyViolation)
    assert not cluster.image.topics


def test_a_lane_with_brokers_of_its_own_has_its_topics_there_and_takes_them_along_when_that_changes() -> None:
    cluster = Committed(brokers=1)
    with_lane(cluster, own_brokers=True)
    cluster.create(NewTopic(name="a", partitions=2, lane="dev", configs={"bmq.pool": "elsewhere"}))
    topic = cluster.image.topic("dev:a")
    assert topic is not None
    assert topic.configs == {"bmq.pool": "lane-dev"}
    assert cluster.owners("dev:a") == [-1, -1]
    assert unowned_of_lanes(cluster.image) == 2
    cluster.register(7, pool="lane-dev")
    assert cluster.owners("dev:a") == [7, 7]
    assert unowned_of_lanes(cluster.image) == 0
    cluster.commit(change_lane(cluster.image, 1, LaneWanted(name="dev")).records)
    topic = cluster.image.topic("dev:a")
    assert topic is not None
    assert topic.configs == {}


def test_a_lanes_topic_that_waits_for_the_bases_brokers_counts_as_one_of_the_bases() -> None:
    cluster = Committed(brokers=0)
    with_lane(cluster)
    cluster.create(NewTopic(name="a", partitions=2, lane="dev"), NewTopic(name="b"))
    assert cluster.owners("dev:a") == [-1, -1]
    assert unowned_of_lanes(cluster.image) == 0


def test_a_lane_goes_with_its_topics_and_a_later_one_of_its_name_has_another_number() -> None:
    cluster = Committed(brokers=1)
    with_lane(cluster)
    cluster.create(NewTopic(name="a", lane="dev"), NewTopic(name="b", lane="dev"), NewTopic(name="a"))
    number = cluster.image.lanes["dev"].number
    decision = delete_lanes(cluster.image, ["dev"])
    assert decision.result == 2
    cluster.commit(decision.records)
    assert (set(cluster.image.topic_ids), dict(cluster.image.lanes)) == ({"a"}, {})
    assert set(cluster.image.deleted.values()) == {"dev:a", "dev:b"}
    with_lane(cluster)
    assert cluster.image.lanes["dev"].number > number
    with pytest.raises(UnknownLane):
        delete_lanes(cluster.image, ["other"])


def test_a_lane_must_not_go_without_its_topics() -> None:
    cluster = Committed(brokers=1)
    with_lane(cluster)
    cluster.create(NewTopic(name="a", lane="dev"))
    *_, gone = delete_lanes(cluster.image, ["dev"]).records
    with pytest.raises(InvariantBroken, match="dev:a"):
        cluster.commit((gone,))


def test_a_lanes_number_is_never_given_again() -> None:
    cluster = Committed()
    with_lane(cluster)
    records = create_lane(cluster.image, 1, LaneWanted(name="other")).records
    cluster.commit(delete_lanes(cluster.image, ["dev"]).records)
    cluster.commit(records)
    with pytest.raises(InvariantBroken, match="given before"):
        cluster.commit(create_lane(Image(), 1, LaneWanted(name="third")).records)
    check_step(Image(), cluster.image)


def test_a_lane_ends_when_its_time_to_live_is_over_counted_from_its_creation() -> None:
    cluster = Committed(brokers=1)
    with_lane(cluster, ttl_s=60)
    cluster.create(NewTopic(name="a", lane="dev"))
    assert expired(cluster.image, 60_999) == []
    assert expired(cluster.image, 61_000) == ["dev"]
    cluster.commit(change_lane(cluster.image, 60_000, LaneWanted(name="dev", ttl_s=90)).records)
    assert expired(cluster.image, 61_000) == []
    assert delete_expired(cluster.image, 61_000).records == ()
    cluster.commit(delete_expired(cluster.image, 91_000).records)
    assert (dict(cluster.image.lanes), dict(cluster.image.topics)) == ({}, {})


def test_a_time_to_live_that_would_be_over_at_once_is_refused() -> None:
    cluster = Committed(brokers=1)
    with_lane(cluster)
    wanted = LaneWanted(name="dev", ttl_s=60)
    with pytest.raises(InvalidRequest, match="set more than 99, or delete the lane"):
        change_lane(cluster.image, 100_000, wanted)
    cluster.commit(change_lane(cluster.image, 60_999, wanted).records)
    reads = LaneWanted(name="dev", ttl_s=60, reads_base=("a",), reads_base_bytes_per_s=1 << 20)
    assert change_lane(cluster.image, 100_000, reads).records, "what was in force is no news"


@pytest.mark.parametrize(
    "wanted",
    [
        LaneWanted(name="No"),
        LaneWanted(name="x", ttl_s=-1),
        LaneWanted(name="x", ttl_s=400 * 24 * 60 * 60),
        LaneWanted(name="x", reads_base=("*",), reads_base_bytes_per_s=10),
        LaneWanted(name="x", reads_base=("",), reads_base_bytes_per_s=10_000),
        LaneWanted(name="x", reads_base=("a",) * 65, reads_base_bytes_per_s=10_000),
    ],
)
def test_a_lane_that_cannot_be_is_refused(wanted: LaneWanted) -> None:
    with pytest.raises(InvalidRequest):
        create_lane(Image(), 0, wanted)


def test_a_name_is_given_once() -> None:
    cluster = Committed()
    with_lane(cluster)
    with pytest.raises(LaneExists):
        create_lane(cluster.image, 0, LaneWanted(name="dev"))
    assert change_lane(cluster.image, 1, LaneWanted(name="dev")).records == ()


@on_virtual_time
async def test_with_a_doubtful_clock_no_lane_ends_and_none_is_made_that_would() -> None:
    store, clock = SimStore(), SimClock()
    role = await start_controller(store.for_node("n"), node_id=NodeId(1), clock=clock, rng=SimRng(1))
    leading = role.controller
    await leading.create_lane(LaneWanted(name="dev", ttl_s=60))
    clock.skew_ms = 10 * 60_000
    await asyncio.sleep(30)
    assert set(role.metadata.image.lanes) == {"dev"}, "its clock says that the time is over, and the store's does not"
    with pytest.raises(ControllerUnavailable, match="clock"):
        await leading.create_lane(LaneWanted(name="other", ttl_s=60))
    await leading.create_lane(LaneWanted(name="stays"))
    clock.skew_ms = 0
    await asyncio.sleep(40)
    assert set(role.metadata.image.lanes) == {"stays"}
    await role.stop()


@pytest.mark.parametrize("wrong", ["until it is looked at", "from then on"])
@on_virtual_time
async def test_a_clock_that_jumps_while_a_lanes_end_is_decided_ends_no_lane(wrong: str) -> None:
    """In whichever turn of the loop it is set right, or goes wrong."""
    store, clock = SimStore(), SimClock()
    role = await start_controller(store.for_node("n"), node_id=NodeId(1), clock=clock, rng=SimRng(1))
    await role.controller.create_lane(LaneWanted(name="dev", ttl_s=3_600))
    looks = role.controller._expiry
    for turns in range(40):
        clock.skew_ms = DAY_MS if wrong == "until it is looked at" else 0

        async def change(turns: int = turns) -> None:
            for _ in range(turns):
                await asyncio.sleep(0)
            clock.skew_ms = DAY_MS - clock.skew_ms

        changing = asyncio.get_running_loop().create_task(change())
        await looks.look()
        await changing
        await looks.look()
        assert set(role.metadata.image.lanes) == {"dev"}, turns
    await role.stop()


@on_virtual_time
async def test_over_a_folder_a_clock_that_jumps_ends_no_lane() -> None:
    """A folder's clock is this machine's: it jumps along, and agrees."""
    store, clock = SimStore(), SimClock()
    role = await start_controller(store.for_node("n"), node_id=NodeId(1), clock=clock, rng=SimRng(1))
    await role.controller.create_lane(LaneWanted(name="dev", ttl_s=3_600))
    await role.stop()
    role = await start_controller(store.for_node("n"), node_id=NodeId(1), clock=clock, rng=SimRng(2))
    await asyncio.sleep(5)
    clock.skew_ms = store.clock_offset_ms = DAY_MS
    await asyncio.sleep(5 * 3_600)
    assert set(role.metadata.image.lanes) == {"dev"}
    clock.skew_ms = store.clock_offset_ms = 0
    await asyncio.sleep(5)
    assert set(role.metadata.image.lanes) == set()
    await role.stop()


@on_virtual_time
async def test_the_next_leader_ends_a_lane_whose_time_ran_out_while_nobody_led() -> None:
    store = SimStore()
    role = await start_controller(store.for_node("n"), node_id=NodeId(1), clock=SimClock(), rng=SimRng(1))
    await role.controller.create_lane(LaneWanted(name="dev", ttl_s=60))
    await role.controller.create_topics([NewTopic(name="a", lane="dev")])
    await role.stop()
    await asyncio.sleep(100)
    role = await start_controller(store.for_node("m"), node_id=NodeId(2), clock=SimClock(), rng=SimRng(2))
    await asyncio.sleep(5)
    image = role.metadata.image
    assert (dict(image.lanes), dict(image.topics), set(image.deleted.values())) == ({}, {}, {"dev:a"})
    await role.stop()


def test_what_a_lane_could_ever_read_is_remembered_with_it_and_bounded() -> None:
    cluster = Committed(brokers=1)
    cluster.commit(create_lane(cluster.image, 1, LaneWanted(name="dev")).records)
    for number in range(HAS_READ_MAX):
        wanted = LaneWanted(name="dev", reads_base=(f"topic-{number}",), reads_base_bytes_per_s=1 << 20)
        cluster.commit(change_lane(cluster.image, 1, wanted).records)
    cluster.commit(change_lane(cluster.image, 1, LaneWanted(name="dev")).records)
    assert cluster.image.lanes["dev"].reads_base == ()
    assert cluster.image.lanes["dev"].has_read_base == tuple(f"topic-{number}" for number in range(HAS_READ_MAX))
    cluster.commit(
        change_lane(
            cluster.image, 1, LaneWanted(name="dev", reads_base=("one-more",), reads_base_bytes_per_s=1 << 20)
        ).records
    )
    assert cluster.image.lanes["dev"].has_read_base == ("*",)
    cluster.commit(delete_lanes(cluster.image, ["dev"]).records)
    cluster.commit(create_lane(cluster.image, 1, LaneWanted(name="dev")).records)
    assert cluster.image.lanes["dev"].has_read_base == (), "another lane"


def test_a_topic_of_the_base_that_is_pinned_to_a_lanes_brokers_waits_for_those_alone() -> None:
    cluster = Committed(brokers=1)
    with_lane(cluster, own_brokers=True)
    cluster.register(7, pool="lane-dev")
    cluster.create(NewTopic(name="stray", partitions=2, configs={"bmq.pool": "lane-dev"}))
    assert cluster.owners("stray") == [7, 7]
    node = cluster.image.nodes[NodeId(7)]
    cluster.commit(report_stopped(cluster.image, node.node_id, node.broker_epoch, end=0).records)
    assert cluster.owners("stray") == [-1, -1]
    assert unowned_of_lanes(cluster.image) == 2
