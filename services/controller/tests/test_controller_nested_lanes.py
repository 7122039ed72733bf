"""Lanes that are nested in others: which may be in which, which go with which, and where it goes on from them."""

import pytest
from controller_committed import Committed

from bmq.errors import InvalidRequest, LaneInUse, UnknownTopic
from bmq.metadata.image import NESTED_MAX, Lane, Topic
from bmq.metadata.records import Whose
from bmq.naming.lanes import overlay_id
from bmq.roles.controller import NewTopic
from bmq.roles.lane_turns import NextTurn, Unconsumed
from bmq.values import TopicPartition
from bmq_controller.machine.lanes import LaneWanted, change_lane, create_lane, delete_expired, delete_lanes, expired
from bmq_controller.machine.routes import Consumers, Handler, Reason, route_of, verdict
from bmq_controller.machine.turns import turned


def nested(*names: str, cluster: Committed | None = None) -> Committed:
    """Lanes that fall back, each in the one before it; the base has `orders`."""
    found = cluster or Committed(brokers=2)
    found.create(NewTopic(name="orders", partitions=2, configs={"retention.ms": "7"}))
    for parent, name in zip(("", *names), names, strict=False):
        found.commit(create_lane(found.image, 1_000, LaneWanted(name=name, falls_back=True, parent=parent)).records)
    return found


def lane(cluster: Committed, name: str) -> Lane:
    return cluster.image.lanes[name]


def topic(cluster: Committed, stored: str) -> Topic:
    found = cluster.image.topic(stored)
    assert found is not None
    return found


def goes_on(cluster: Committed, stored: str, partition: int = 0) -> object:
    """None, or why its turn does not begin."""
    tp = TopicPartition(topic(cluster, stored).topic_id, partition)
    since = Unconsumed(epoch=1, count=0)
    wanted = NextTurn(tp=tp, generation=cluster.image.turn(tp).generation, whose=Whose.BASE, begin=0, since=since)
    decision = turned(cluster.image, [wanted], is_absent=lambda _topic, _since: True)
    cluster.commit(decision.records)
    return decision.result[0]


def test_what_nobody_consumes_goes_on_to_the_lane_that_it_is_nested_in_and_to_the_base_from_there() -> None:
    cluster = nested("ppe", "dev")
    cluster.create(NewTopic(name="orders", lane="dev"))
    assert isinstance(goes_on(cluster, "dev:orders"), UnknownTopic), "the lane beneath has none of its own yet"
    cluster.create(NewTopic(name="orders", lane="ppe"))
    assert goes_on(cluster, "dev:orders") is None
    turn = cluster.image.turn(TopicPartition(topic(cluster, "dev:orders").topic_id, 0))
    assert turn.base_topic_id == topic(cluster, "ppe:orders").topic_id
    assert goes_on(cluster, "ppe:orders", 1) is None
    turn = cluster.image.turn(TopicPartition(topic(cluster, "ppe:orders").topic_id, 1))
    assert turn.base_topic_id == topic(cluster, "orders").topic_id


def test_a_lane_whose_parent_keeps_what_it_has_goes_on_to_it() -> None:
    cluster = Committed(brokers=1)
    cluster.commit(create_lane(cluster.image, 1, LaneWanted(name="ppe")).records)
    nested(cluster=cluster)
    wanted = LaneWanted(name="dev", falls_back=True, parent="ppe")
    cluster.commit(create_lane(cluster.image, 1, wanted).records)
    cluster.create(NewTopic(name="orders", lane="dev"), NewTopic(name="orders", lane="ppe"))
    assert goes_on(cluster, "dev:orders") is None
    assert isinstance(goes_on(cluster, "ppe:orders"), InvalidRequest)


def test_a_topic_has_the_shape_of_the_nearest_beneath_and_an_id_that_does_not_hang_on_which_that_is() -> None:
    cluster = nested("boe", "ppe", "dev")
    assert cluster.image.beneath(lane(cluster, "dev"), "orders") is topic(cluster, "orders")
    cluster.create(NewTopic(name="orders", lane="boe", partitions=5, configs={"retention.ms": "9"}))
    cluster.create(NewTopic(name="only", lane="boe", partitions=3))
    for name, count, stored in (("orders", 5, "dev:orders"), ("only", 3, "dev:only")):
        root = cluster.image.rooted_in(lane(cluster, "dev"), name)
        assert root is not None
        foretold = overlay_id(cluster.image.cluster_id, 3, name, 0, base_id=root.topic_id)
        cluster.create(NewTopic(name=name, lane="ppe"), NewTopic(name=name, lane="dev"))
        made = topic(cluster, stored)
        assert (made.topic_id, len(made.partitions)) == (foretold, count)
    assert topic(cluster, "dev:orders").configs["retention.ms"] == "9"
    assert cluster.image.beneath(lane(cluster, "dev"), "none") is None


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (LaneWanted(name="new", falls_back=True, parent="nothing"), "no such lane: create it first"),
        (LaneWanted(name="new", falls_back=True, parent="new"), "no such lane: create it first"),
        (LaneWanted(name="new", parent="dev"), "set fallback = base"),
        (LaneWanted(name="new", falls_back=True, parent="reads"), "its clients read the base"),
        (LaneWanted(name="new", falls_back=True, parent="x" * 5_000), r"parent = x{40}: there"),
    ],
)
def test_a_lane_that_cannot_be_nested_so_is_refused(wanted: LaneWanted, why: str) -> None:
    cluster = nested("dev")
    reads = LaneWanted(name="reads", reads_base=("*",), reads_base_bytes_per_s=1_024)
    cluster.commit(create_lane(cluster.image, 1, reads).records)
    with pytest.raises(InvalidRequest, match=why):
        create_lane(cluster.image, 2, wanted)


def test_lanes_are_nested_as_deep_as_may_be_and_no_deeper() -> None:
    cluster = nested(*(f"l{depth}" for depth in range(NESTED_MAX)))
    assert [one.name for one in cluster.image.parents(lane(cluster, "l7"))] == [f"l{n}" for n in range(6, -1, -1)]
    with pytest.raises(InvalidRequest, match="8 may be one in the other"):
        create_lane(cluster.image, 2, LaneWanted(name="deeper", falls_back=True, parent="l7"))


def test_a_lane_stays_in_the_one_that_it_was_made_in_and_one_that_others_are_in_does_not_come_to_read_the_base() -> (
    None
):
    cluster = nested("ppe", "dev")
    for parent in ("", "dev"):
        with pytest.raises(InvalidRequest, match="the lane was made in ppe, which stays"):
            change_lane(cluster.image, 2, LaneWanted(name="dev", falls_back=True, parent=parent))
    plain = Committed(brokers=1)
    plain.commit(create_lane(plain.image, 1, LaneWanted(name="ppe")).records)
    plain.commit(create_lane(plain.image, 1, LaneWanted(name="dev", falls_back=True, parent="ppe")).records)
    with pytest.raises(InvalidRequest, match=r"lanes are nested in 'ppe' \(dev\)"):
        change_lane(plain.image, 2, LaneWanted(name="ppe", reads_base=("*",), reads_base_bytes_per_s=1_024))
    kept = change_lane(cluster.image, 2, LaneWanted(name="dev", falls_back=True, parent="ppe", ttl_s=9_000)).records
    cluster.commit(kept)
    assert (lane(cluster, "dev").parent, lane(cluster, "dev").ttl_s) == ("ppe", 9_000)


def test_a_lane_goes_after_those_that_are_nested_in_it_or_together_with_them() -> None:
    cluster = nested("ppe", "dev")
    for number in range(12):
        wanted = LaneWanted(name=f"t{number:02}", falls_back=True, parent="ppe")
        cluster.commit(create_lane(cluster.image, 1, wanted).records)
    with pytest.raises(LaneInUse, match=r"in 'ppe' there are nested dev, t00, .*, t08 and 3 more"):
        delete_lanes(cluster.image, ["ppe"])
    names = [name for name in cluster.image.lanes if name != "ppe"]
    with pytest.raises(LaneInUse):
        delete_lanes(cluster.image, ["ppe", *names[:-1]])
    cluster.commit(delete_lanes(cluster.image, ["ppe", *names]).records)
    assert not cluster.image.lanes


def test_a_lane_whose_time_is_over_stays_until_nothing_is_nested_in_it() -> None:
    cluster = Committed(brokers=1)
    cluster.commit(create_lane(cluster.image, 0, LaneWanted(name="ppe", falls_back=True, ttl_s=10)).records)
    wanted = LaneWanted(name="dev", falls_back=True, parent="ppe", ttl_s=60)
    cluster.commit(create_lane(cluster.image, 0, wanted).records)
    assert expired(cluster.image, 30_000) == []
    assert expired(cluster.image, 60_000) == ["dev"]
    cluster.commit(delete_expired(cluster.image, 60_000).records)
    assert expired(cluster.image, 60_000) == ["ppe"]
    cluster.commit(delete_expired(cluster.image, 60_000).records)
    assert not cluster.image.lanes


def test_a_route_names_the_lane_to_which_it_goes_on() -> None:
    cluster = nested("ppe", "dev")

    def said() -> tuple[Handler, Reason, str]:
        route = route_of(cluster.image, lane(cluster, "dev"), "orders")
        found = verdict(route, Consumers(), grace_s=30)
        return found.handler, found.reason, found.why

    assert said()[:2] == (Handler.PARENT, Reason.NOT_WRITTEN)
    cluster.create(NewTopic(name="orders", lane="dev"))
    handler, reason, why = said()
    assert (handler, reason) == (Handler.LANE, Reason.WAITING)
    assert "goes on to lane ppe" in why
    cluster.create(NewTopic(name="orders", lane="ppe"))
    for partition in range(2):
        assert goes_on(cluster, "dev:orders", partition) is None
    assert said() == (Handler.PARENT, Reason.UNCONSUMED, "nobody in the lane consumes it: it goes on to lane ppe")
    cluster.create(NewTopic(name="alone", lane="dev"))
    route = route_of(cluster.image, lane(cluster, "dev"), "alone")
    assert verdict(route, Consumers(), grace_s=30).reason is Reason.NO_BASE_PARTITION
