"""First placement and heirs: fair over brokers and zones, within every rule, the same each time."""

from collections import Counter
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from bmq.metadata.derived import count_owners
from bmq.metadata.image import Image, Node, PartitionMeta, Topic
from bmq.values import BrokerEpoch, NodeId, TopicId
from bmq_controller.machine.placement import Placement, living_broker

ORDERS = TopicId(UUID(int=1))
NEW = TopicId(UUID(int=99))


def image_of(
    racks: dict[int, str],
    topics: dict[str, list[int]] | None = None,
    *,
    cordoned: tuple[int, ...] = (),
    pools: dict[int, str] | None = None,
) -> Image:
    """Brokers by id with their racks; topics by name with the owners of their partitions, with the ids 1, 2, …"""
    nodes = {
        NodeId(node_id): Node(
            node_id=NodeId(node_id),
            broker_epoch=BrokerEpoch(7),
            boot=UUID(int=node_id),
            roles=("broker",),
            host="h",
            port=1,
            rack=rack,
            pool=(pools or {}).get(node_id, ""),
        )
        for node_id, rack in racks.items()
    }
    known = {
        TopicId(UUID(int=number)): Topic(
            topic_id=TopicId(UUID(int=number)),
            name=name,
            partitions=tuple(PartitionMeta(NodeId(owner), BrokerEpoch(7)) for owner in owners),
        )
        for number, (name, owners) in enumerate((topics or {}).items(), start=1)
    }
    return Image(
        nodes=nodes,
        topics=known,
        topic_ids={topic.name: topic_id for topic_id, topic in known.items()},
        owned_counts=count_owners(known),
        cordoned={NodeId(node_id): True for node_id in cordoned},
    )


def placed(placement: Placement, count: int, *, topic_id: TopicId = NEW, pool: str = "") -> list[int]:
    """The brokers of so many partitions of a new topic; -1 for none."""
    placement.announce(topic_id, pool=pool, partitions=count)
    return [owner[0] if (owner := placement.next(topic_id)) else -1 for _ in range(count)]


def test_partitions_go_to_the_brokers_with_the_fewest() -> None:
    image = image_of({1: "", 2: "", 3: ""}, {"orders": [1, 1, 1, 2]})
    assert placed(Placement.on(image), 5) == [3, 2, 3, 2, 3]


def test_the_owner_is_named_with_its_epoch() -> None:
    assert Placement.on(image_of({4: ""}, {"orders": [-1]})).next(ORDERS) == (4, 7)


def test_each_zone_gets_its_share_of_a_topic() -> None:
    image = image_of({1: "a", 2: "a", 3: "b", 4: "c"}, {"orders": [3] * 50 + [4] * 50})
    zones = Counter(image.nodes[NodeId(owner)].rack for owner in placed(Placement.on(image), 4))
    assert zones == {"a": 2, "b": 1, "c": 1}


def test_a_topic_that_grows_fills_the_zones_that_have_too_few() -> None:
    image = image_of({1: "a", 2: "b"}, {"orders": [1, 1]})
    placement = Placement.on(image)
    placement.announce(ORDERS, pool="", partitions=4)
    assert [placement.next(ORDERS), placement.next(ORDERS)] == [(2, 7), (2, 7)]


def test_a_cordoned_broker_gets_nothing_new() -> None:
    image = image_of({1: "", 2: ""}, cordoned=(1,))
    assert placed(Placement.on(image), 3) == [2, 2, 2]
    assert placed(Placement.on(image_of({1: ""}, cordoned=(1,))), 1) == [-1]


def test_heirs_are_cordoned_brokers_only_where_there_are_no_others() -> None:
    racks = {1: "", 2: "", 3: ""}
    assert placed(Placement.for_heirs(image_of(racks, cordoned=(2,)), without={NodeId(1)}), 2) == [3, 3]
    assert placed(Placement.for_heirs(image_of(racks, cordoned=(2, 3)), without={NodeId(1)}), 2) == [2, 3]


def test_a_broker_that_stops_soon_gets_nothing_new_and_is_the_last_to_inherit() -> None:
    racks = {1: "", 2: "", 3: "", 4: ""}
    stopping = {NodeId(3), NodeId(4)}
    assert placed(Placement.on(image_of(racks), avoid=stopping), 3) == [1, 2, 1]
    assert placed(Placement.on(image_of({3: ""}), avoid=stopping), 1) == [-1], "it waits for a broker that stays"
    gone = {NodeId(1)}
    assert placed(Placement.for_heirs(image_of(racks), without=gone, avoid=stopping), 2) == [2, 2]
    assert placed(Placement.for_heirs(image_of(racks, cordoned=(2,)), without=gone, avoid=stopping), 2) == [2, 2]
    assert placed(Placement.for_heirs(image_of(racks), without={*gone, NodeId(2)}, avoid=stopping), 2) == [3, 4]


def test_a_broker_that_leaves_or_is_being_fenced_gets_nothing() -> None:
    image = image_of({1: "", 2: "", 3: ""})
    fenced = Image(nodes=image.nodes, fencing={NodeId(2): BrokerEpoch(7)})
    assert placed(Placement.on(fenced, without={NodeId(1)}), 2) == [3, 3]
    assert living_broker(fenced, NodeId(2)) is None
    assert living_broker(fenced, NodeId(3)) == (3, 7)


def test_without_a_broker_partitions_wait() -> None:
    assert placed(Placement.on(Image()), 2) == [-1, -1]


def test_a_pinned_topic_sits_on_its_brokers_and_waits_where_there_are_none() -> None:
    image = image_of({1: "", 2: "", 8: "", 9: ""}, pools={8: "gold", 9: "gold"})
    assert placed(Placement.on(image), 4, pool="gold") == [8, 9, 8, 9]
    assert placed(Placement.on(image), 4) == [1, 2, 1, 2]
    assert placed(Placement.on(image), 1, pool="silver") == [-1]


def test_a_broker_that_takes_many_bytes_gets_fewer_partitions() -> None:
    image = image_of({1: "", 2: ""}, {"orders": [1, 2] * 10})
    placement = Placement(image, bytes_per_s={NodeId(1): 9e6, NodeId(2): 1e6, NodeId(3): float("nan")})
    owners = Counter(placed(placement, 10))
    assert owners[2] > 2 * owners[1]


def test_partitions_under_way_count_where_they_go_to() -> None:
    image = image_of({1: "a", 2: "b"}, {"orders": [1, 1, 1, -1]})
    topic = image.topics[ORDERS]
    under_way = PartitionMeta(NodeId(1), BrokerEpoch(7), moving_to=NodeId(2))
    moving = (under_way, under_way, *topic.partitions[2:])
    image = Image(
        nodes=image.nodes,
        topics={ORDERS: Topic(topic_id=ORDERS, name="orders", partitions=moving)},
        owned_counts=image.owned_counts,
    )
    assert Placement.on(image).next(ORDERS) == (1, 7)


@given(brokers=st.integers(2, 12), sizes=st.lists(st.integers(1, 30), min_size=1, max_size=12), data=st.data())
@settings(max_examples=150, deadline=None)
def test_the_partitions_of_a_dead_broker_are_spread_evenly(brokers: int, sizes: list[int], data: st.DataObject) -> None:
    dealt = iter(range(10_000))
    image = image_of(
        dict.fromkeys(range(brokers), "a"),
        {f"t{number}": [next(dealt) % brokers for _ in range(size)] for number, size in enumerate(sizes)},
    )
    dead = NodeId(data.draw(st.integers(0, brokers - 1)))
    placement = Placement.for_heirs(image, without={dead})
    counts = Counter({node_id: image.owned_counts.get(node_id, 0) for node_id in image.nodes if node_id != dead})
    for topic in image.topics.values():
        for meta in topic.partitions:
            if meta.node_id == dead:
                owner = placement.next(topic.topic_id)
                assert owner is not None
                counts[owner[0]] += 1
    assert max(counts.values()) - min(counts.values()) <= 1


@given(
    racks=st.dictionaries(st.integers(0, 20), st.sampled_from(["a", "b", "c", ""]), min_size=1, max_size=12),
    cordoned=st.sets(st.integers(0, 20)),
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=8),
)
@settings(max_examples=150, deadline=None)
def test_new_topics_are_within_the_limits_of_zones_and_placed_alike_each_time(
    racks: dict[int, str], cordoned: set[int], sizes: list[int]
) -> None:
    image = image_of(racks, cordoned=tuple(node_id for node_id in racks if node_id in cordoned))

    def place() -> list[list[int]]:
        placement = Placement.on(image)
        return [placed(placement, size, topic_id=TopicId(UUID(int=number))) for number, size in enumerate(sizes)]

    topics = place()
    assert topics == place()
    taking = [node_id for node_id in racks if node_id not in cordoned]
    for owners in topics:
        assert set(owners) <= (set(taking) or {-1})
        if len(taking) == len(racks):
            for rack, there in Counter(racks[owner] for owner in owners).items():
                share = len(owners) * sum(other == rack for other in racks.values()) / len(racks)
                assert there <= -(-share // 1) + share // 4
