"""Plans of faults: a seed says everything, each kind of fault comes before one comes twice, and a run ends when it
should.
"""

from collections import Counter

import pytest
from chaos_faults import AFTER_S, Done, Windows
from chaos_plan import LEADER, OTHER_CONTROLLER, STORE, Fault, Nodes, plan

NODES = Nodes(brokers=[101, 102, 103], proxies=[1, 2], controllers=[201, 202])
SECONDS = 300.0


@pytest.mark.parametrize("seed", range(20))
def test_a_plan_of_five_minutes_has_every_fault_and_ends_in_time(seed: int) -> None:
    planned = plan(seed, seconds=SECONDS, nodes=NODES)
    assert planned == plan(seed, seconds=SECONDS, nodes=NODES)
    counts = Counter(one.fault for one in planned)
    assert set(counts) == set(Fault)
    assert max(counts.values()) - min(counts.values()) <= 1
    for one in planned:
        assert one.at_s + one.seconds <= SECONDS
        assert one.node_id in {*NODES.everyone, LEADER, OTHER_CONTROLLER, STORE}
        assert (one.delay_s > 0) == one.fault.endswith("-delay")
        assert one.node_id not in one.peers
        if one.fault.verb == "client":
            assert one.node_id in NODES.proxies
        if one.fault.verb == "node":
            assert one.node_id not in NODES.proxies, "nobody calls a proxy"


def test_seeds_differ() -> None:
    plans = {tuple(plan(seed, seconds=SECONDS, nodes=NODES)) for seed in range(20)}
    assert len(plans) == 20


def test_a_record_counts_for_the_fault_that_began_last_before_it_was_sent() -> None:
    windows = Windows(
        [Done(fault="long", node_id=1, began_s=10, ended_s=20), Done(fault="short", node_id=2, began_s=12, ended_s=13)]
    )
    assert [windows.at(time_s) for time_s in (9, 11, 12.5, 13 + AFTER_S + 1, 20 + AFTER_S + 1)] == [
        "none",
        "long",
        "short",
        "long",
        "none",
    ]
