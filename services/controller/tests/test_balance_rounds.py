"""The balancer, case by case: what it plans, why, and what it leaves alone."""

from random import Random

import pytest
from balanced_world import World

from bmq.values import NodeId, TopicPartition
from bmq_controller.machine.balance_model import BalanceSettings, MoveKind

MB = 1_000_000


def even(brokers: int, *, racks: int = 1) -> World:
    """Brokers 1.. over `racks` zones a, b, … in turn."""
    world = World()
    for node_id in range(1, brokers + 1):
        world.broker(node_id, rack="abcdef"[(node_id - 1) % racks])
    return world


def skewed(world: World, *, topics: int, partitions: int, seed: int) -> None:
    """Loads as they are: a few topics take most, and most take next to nothing; partitions dealt out by count."""
    random = Random(seed)
    node_ids = list(world.brokers)
    dealt = 0
    for number in range(topics):
        owners = [node_ids[(dealt + index) % len(node_ids)] for index in range(partitions)]
        dealt += partitions
        busy = 40 * MB / (number + 1)
        world.topic(
            f"t{number}", owners, [int(busy / partitions * random.uniform(0.5, 1.5)) for _ in range(partitions)]
        )


def test_an_even_cluster_is_left_alone() -> None:
    world = even(3)
    world.topic("a", [1, 2, 3], [MB, MB, MB])
    planned = world.round()
    assert planned.moves == ()
    assert planned.problems == ()
    assert planned.before == planned.after
    assert (planned.after.bytes_low, planned.after.bytes_high) == (1.0, 1.0)


@pytest.mark.parametrize("racks", [1, 3])
@pytest.mark.parametrize("seed", range(5))
def test_a_broker_added_to_a_loaded_cluster_is_even_within_30_rounds(racks: int, seed: int) -> None:
    world = even(6, racks=racks)
    skewed(world, topics=60, partitions=12, seed=seed)
    world.settle(rounds_max=200)
    world.broker(7, rack="a")
    world.rounds_per_move = 2
    for _ in range(30):
        world.round()
    low, high = world.evenness()
    assert low > 0.9
    assert high < 1.1


def test_many_equal_partitions_even_out_within_30_rounds() -> None:
    world = even(4)
    for number in range(40):
        world.topic(f"t{number}", [1 + index % 4 for index in range(100)], [MB // 10] * 100)
    world.broker(5)
    rounds = 0
    while min(world.evenness()) < 0.9:
        world.round()
        rounds += 1
    assert rounds <= 30


def test_few_moves_even_out_what_a_few_partitions_cause() -> None:
    world = even(3)
    world.topic("busy", [1, 1, 1], [10 * MB, 10 * MB, 10 * MB])
    world.topic("quiet", [1 + index % 3 for index in range(60)], [MB // 100] * 60)
    planned = world.round()
    assert [(move.topic, move.source, move.kind) for move in planned.moves] == [("busy", 1, MoveKind.BYTES)] * 2
    assert {move.target for move in planned.moves} == {2, 3}
    assert planned.moves[0].reason == "broker 1 takes 296% of the mean bytes per second, broker 2 2%"
    assert world.settle(rounds_max=100) == 0


def test_one_partition_that_is_too_busy_for_any_broker_stays_and_is_named() -> None:
    world = even(3)
    world.topic("giant", [1], [100 * MB])
    world.topic("rest", [1, 2, 3], [MB, MB, MB])
    planned = world.round()
    assert all(move.topic == "rest" for move in planned.moves)
    assert "partition 0 of giant alone takes 291% of a broker's mean bytes per second" in planned.problems[0]
    assert planned.problems[0].endswith("give giant more partitions")
    world.settle(rounds_max=50)


def test_partitions_are_exchanged_where_no_single_move_helps() -> None:
    world = even(2)
    world.topic("a", [1, 1, 2, 2], [6 * MB, 6 * MB, 4 * MB, 4 * MB])
    planned = world.round()
    assert len(planned.moves) == 2
    assert planned.moves[1].reason.startswith("takes the place of partition")
    assert world.evenness() == (1.0, 1.0)


def test_a_busy_partition_and_a_quiet_one_of_its_topic_change_zones() -> None:
    world = even(2, racks=2)
    for number in range(10):
        world.topic(f"t{number}", [1, 2], [3 * MB, MB])
    world.settle(rounds_max=100)
    low, high = world.evenness()
    assert low > 0.9
    assert high < 1.1
    assert world.crowded() == 0


def test_a_cordoned_broker_keeps_what_it_has_and_gets_nothing() -> None:
    world = even(4)
    world.topic("a", [1, 1, 2, 3], [5 * MB, MB, 6 * MB, 0])
    world.change(1, cordoned=True)
    world.change(4, cordoned=True)
    world.settle(rounds_max=50)
    assert world.count_of(1) == 2
    assert world.count_of(4) == 0


def test_a_draining_broker_loses_everything_within_the_bound_of_each_round() -> None:
    world = even(3)
    world.settings = BalanceSettings(moves_max=10)
    world.topic("a", [1] * 25 + [2, 3], [MB] * 27)
    world.change(1, draining=True)
    first = world.round()
    assert len(first.moves) == 10
    assert {(move.kind, move.reason) for move in first.moves} == {(MoveKind.DRAIN, "broker 1 drains")}
    assert (first.before.misplaced, first.after.misplaced) == (25, 15)
    world.round()
    world.round()
    assert world.count_of(1) == 0
    assert abs(world.count_of(2) - world.count_of(3)) <= 1


def test_moves_that_are_slow_are_not_piled_up() -> None:
    world = even(2)
    world.settings = BalanceSettings(moves_max=4)
    world.rounds_per_move = 10
    world.topic("a", [1] * 40, [MB] * 40)
    assert len(world.round().moves) == 4
    assert [len(world.round().moves) for _ in range(9)] == [0] * 9


def test_a_partition_without_an_owner_gets_one_before_anything_else() -> None:
    world = even(2)
    world.settings = BalanceSettings(moves_max=1)
    world.change(1, draining=True)
    world.topic("a", [1, 1, -1], [MB, MB, 0])
    [move] = world.round().moves
    assert (move.kind, move.source, move.target, move.reason) == (MoveKind.UNOWNED, -1, 2, "it has no owner")


def test_partitions_of_a_broker_that_is_not_there_are_left_alone() -> None:
    world = even(2)
    world.topic("a", [9, 9, 1, 2], [MB, MB, 0, 0])
    assert world.round().moves == ()


def test_a_pinned_topic_moves_to_its_brokers_and_others_leave_them() -> None:
    world = even(2)
    world.broker(8, pool="gold")
    world.broker(9, pool="gold")
    world.topic("orders", [1, 2, 1, 2], [MB] * 4, pool="gold")
    world.topic("logs", [1, 2, 8, 9], [MB] * 4)
    planned = world.round()
    assert {move.topic: move.reason for move in planned.moves if move.source in (1, 8)} == {
        "orders": "orders belongs on the brokers of gold, and broker 1 is one of the brokers that are everybody's",
        "logs": "logs belongs on the brokers that are everybody's, and broker 8 is one of the brokers of gold",
    }
    assert sorted(world.topics[0].owners) == [8, 8, 9, 9]
    assert sorted(world.topics[1].owners) == [1, 1, 2, 2]


def test_a_pin_that_no_broker_can_fulfil_is_said_and_moves_nothing() -> None:
    world = even(2)
    world.broker(9, pool="gold", cordoned=True)
    world.topic("orders", [1, 2], [MB, MB], pool="gold")
    planned = world.round()
    assert planned.moves == ()
    assert planned.problems == (
        "2 partitions of orders cannot be placed: none of the brokers of gold takes partitions: start or uncordon "
        "one there, or take the pin away",
    )
    world.change(9)
    assert len(world.round().moves) == 2


def test_a_new_zone_gets_its_share_of_every_topic() -> None:
    world = even(2, racks=2)
    for number in range(5):
        world.topic(f"t{number}", [1, 2, 1, 2, 1, 2])
    world.broker(3, rack="c")
    planned = world.round()
    assert {move.kind for move in planned.moves} == {MoveKind.ZONE}
    assert planned.moves[0].reason == "zone a has 3 of the 6 partitions of t0, its share is 2"
    assert (planned.before.crowded, planned.after.crowded) == (20, 0)
    world.settle(rounds_max=10)
    assert all(world.zones(topic) == {"a": 2, "b": 2, "c": 2} for topic in world.topics)


def test_a_zone_under_cordon_is_not_emptied_into_the_others() -> None:
    world = even(4, racks=2)
    world.topic("a", [1, 2, 3, 4], [MB] * 4)
    world.change(2, cordoned=True)
    world.change(4, cordoned=True)
    assert world.settle(rounds_max=50) == 0


def test_counts_are_evened_out_with_the_quietest_partitions() -> None:
    world = even(2)
    world.topic("busy", [1, 2], [10 * MB, 10 * MB])
    world.topic("idle", [1] * 20)
    planned = world.round()
    assert {(move.topic, move.kind) for move in planned.moves} == {("idle", MoveKind.COUNT)}
    assert planned.moves[0].reason == "broker 1 owns 21 partitions, broker 2 1"
    assert abs(world.count_of(1) - world.count_of(2)) <= 2


def test_counts_are_not_evened_out_at_the_price_of_bytes() -> None:
    world = even(2)
    world.topic("busy", [1], [10 * MB])
    world.topic("many", [2] * 20, [MB // 2] * 20)
    assert world.settle(rounds_max=50) == 0


def test_what_hardly_takes_anything_is_not_moved_for_its_bytes() -> None:
    world = even(2)
    world.topic("a", [1, 1, 2, 2], [900, 800, 10, 0])
    assert world.round().moves == ()


def test_balancing_begins_beyond_the_start_and_goes_on_to_the_stop() -> None:
    def world_at(share: float) -> World:
        world = even(2)
        world.topic("a", [1] * 100 + [2] * 100, [int(share * MB)] * 100 + [int((2 - share) * MB)] * 100)
        return world

    assert world_at(1.09).round().moves == ()
    world = world_at(1.12)
    world.settle(rounds_max=50)
    low, high = world.evenness()
    assert 0.95 <= low <= high <= 1.05


def test_a_partition_that_has_just_moved_rests() -> None:
    world = even(2)
    topic = world.topic("a", [1, 1, 2, 2], [MB] * 4)
    for index in range(4):
        world.since_ms[TopicPartition(topic.topic_id, index)] = world.now_ms
    topic.loads = [10 * MB, 10 * MB, MB, MB]
    assert world.round().moves == ()
    world.now_ms += world.settings.rest_ms
    assert world.round().moves
    world.change(2, draining=True)
    assert {move.kind for move in world.round().moves} == {MoveKind.DRAIN}


def test_two_pools_are_evened_out_each_by_itself() -> None:
    world = even(2)
    world.broker(8, pool="gold")
    world.broker(9, pool="gold")
    world.topic("shared", [1, 2], [MB, MB])
    world.topic("gold", [8] * 4, [50 * MB] * 4, pool="gold")
    planned = world.round()
    assert {(move.source, move.target) for move in planned.moves} == {(NodeId(8), NodeId(9))}
    assert planned.balancing == {"gold"}


def test_a_plan_without_bound_is_the_whole_way() -> None:
    world = even(3)
    skewed(world, topics=30, partitions=6, seed=1)
    world.broker(4)
    world.settings = BalanceSettings(moves_max=1_000_000)
    planned = world.round()
    assert planned.before.bytes_low == 0.0
    assert planned.after.bytes_low > 0.9
    assert world.settle(rounds_max=50) == 0


def test_an_empty_cluster_has_nothing_to_plan() -> None:
    world = World()
    assert world.round().moves == ()
    world.topic("a", [-1, -1])
    assert world.round().problems == (
        "2 partitions of a cannot be placed: none of the brokers that are everybody's takes partitions: start or "
        "uncordon one there",
    )
