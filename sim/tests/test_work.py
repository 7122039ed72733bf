"""Counts add up over runs, also over those of several processes by a file."""

from collections import Counter
from pathlib import Path

from bmq_sim.cluster.campaign import PAIRS, pairs_of
from bmq_sim.main import run_seeds
from bmq_sim.work import INJECTED, Work, added, faults_table, summary, table


def some_work(records: int) -> Work:
    return Work(
        seeds=1,
        virtual_s=3600.0,
        batches=2,
        records=records,
        faults=Counter({"kill": 1}),
        pairs=Counter({("kill", "seal"): 1, ("pause", "seal"): 2, ("kill", "roll"): 3}),
        injected=Counter({"kill": 1_000}),
    )


def test_counts_of_runs_add_up_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "counts.json"
    assert added(some_work(10), file) == some_work(10)
    both = added(some_work(5), file)
    assert both.records == 15
    assert both.pairs["pause", "seal"] == 4
    assert both.injected["kill"] == 2_000
    assert added(Work(), file) == both
    assert summary(both).startswith("15 records in 4 batches acknowledged")


def test_the_table_shows_each_pair_and_the_least_of_each_line() -> None:
    lines = [line.split() for line in table(some_work(1), ["kill", "pause"], ["seal", "roll"]).splitlines()]
    assert lines == [["kill", "pause", "least"], ["seal", "1", "2", "1"], ["roll", "3", "0", "0"], ["least", "1", "0"]]


def test_every_scenario_tells_what_went_wrong_in_it() -> None:
    works = {"engine": Work(), "some": some_work(1)}
    for outcome in run_seeds("engine", range(3)):
        works["engine"].add(outcome.work)
    [head, _, engine, some] = [line.strip("| ").split(" | ") for line in faults_table(works).splitlines()]
    assert head == ["scenario", "seeds", *INJECTED]
    assert some == ["some", "1", "1,000", *("0" for _ in INJECTED[1:])]
    assert engine[:2] == ["engine", "3"]
    assert all(works["engine"].injected[kind] for kind in ("kill", "cut", "slow", "unknown outcome")), works[
        "engine"
    ].injected


def test_seeds_that_follow_each_other_aim_at_every_pair_equally_often() -> None:
    aimed = Counter(pair for seed in range(len(PAIRS)) for pair in pairs_of(seed, 7))
    assert set(aimed.values()) == {7}
    assert aimed.keys() == set(PAIRS)
