"""Every query of the dashboards, and every alert, against a real Prometheus that scrapes a real cluster under load.

What takes the operator's metrics or Spark's is tried with these, in tests/e2e.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from dashboard_files import TRIED_ELSEWHERE, Query, alerts, dashboards, metrics_in, queries
from lane_clients import make_lane
from load import KEEPING_UP, LAGGING, OF_THE_LANE, under_load
from probe_process import Probe
from prometheus_process import DATABUS_RELABELINGS, Prometheus, Target, filled_in
from sidecar_process import Sidecar
from tests.waiting import until
from tools.metrics_page import SECTIONS, metrics_of
from up_nodes import UpNodes

VARIABLES = {
    "namespace": "team",
    "cluster": "demo",
    "instance": ".*",
    "channel": ".*",
    "group": ".*",
    "lane": ".*",
    "put_price": "0.005",
    "get_price": "0.0004",
    "__rate_interval": "15s",
}
ENVIRONMENT = {"BMQ_TAIL_BUDGET_BYTES": "1MiB", "BMQ_LINGER_MS": "20", "BMQ_LANE_GRACE_MS": "3000"}
"""Segments after a few seconds, and messages of a lane that go on to the base."""
DATA_WITHIN_S = 90
LANE, FALLING = "dev", "qa"
OF_A_BUSY_MACHINE = {"BmqEventLoopLag", "BmqStoreSlow", "BmqProduceSlow", "BmqProbeSlow", "BmqProbeFails"}
"""Those that a machine with much else to do may raise rightly."""
SERIES_MAX = 500
"""Of one node; those of groups come on top."""
_SERVES = re.compile(r"bmq node (\d+) \((\w+)\) serves: .*?([0-9.]+:\d+) \(admin\)")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


class Monitored(NamedTuple):
    prometheus: Prometheus
    cluster: UpNodes


def targets_of(cluster: UpNodes) -> list[Target]:
    """Its processes as pods; the second proxy is labelled as a lane's own would be."""
    assert cluster.process.stdout is not None
    found: list[Target] = []
    for line in cluster.process.stdout:
        if line.startswith("Ctrl-C"):
            break
        if matched := _SERVES.search(line):
            number, role, address = matched.groups()
            lane = LANE if number == "2" else ""
            found.append(Target(address=address, pod=f"demo-{role}-{number}", component=role, lane=lane))
    return found


@pytest.fixture(scope="module")
def monitored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Monitored]:
    folder = tmp_path_factory.mktemp("monitored")
    cluster = UpNodes(
        "1c2b2p", ["--data", str(folder / "data"), "--no-fsync"], log=folder / "bmq.log", environment=ENVIRONMENT
    )
    try:
        targets = targets_of(cluster)
        assert len(targets) == 5, targets
        probe = Probe(cluster.servers, log=folder / "probe.log")
        targets.append(Target(address=probe.admin, pod="demo-probe-0", component="probe"))
        sidecar = Sidecar(cluster.servers, cluster.admin, folder=folder / "sidecar")
        of_pods = {DATABUS_RELABELINGS: [Target(address=sidecar.health, pod="app-1")]}
        prometheus = Prometheus(folder, targets, others=of_pods)
        try:
            prometheus.until_scraped(len(targets) + 1)
            make_lane(cluster.admin, LANE, quota={"write_bytes_per_second": 100_000})  # a fifth of what is written
            make_lane(cluster.admin, FALLING, fallback="base")
            with under_load(*cluster.servers.split(","), lane=LANE, falling=FALLING), sidecar.written_to():
                yield Monitored(prometheus, cluster)
        finally:
            prometheus.close()
            sidecar.close()
            probe.close()
        assert cluster.stop() == 0, cluster.tail_of_log()
    finally:
        cluster.close()


def of_the_cluster() -> Iterator[Query]:
    for uid, dashboard in dashboards().items():
        if uid not in TRIED_ELSEWHERE:
            yield from queries(dashboard)


def test_every_query_of_every_dashboard_returns_data(monitored: Monitored) -> None:
    asked = list(of_the_cluster())
    assert len(asked) > 80
    wanted = {filled_in(one.expression, VARIABLES): one.panel for one in asked}
    monitored.prometheus.until_data(wanted, DATA_WITHIN_S, is_data=has_data)


def has_data(series: list[dict[str, Any]]) -> bool:
    """Numbers, and not only those of a division by nothing."""
    return any(one["value"][1] != "NaN" for one in series)


def test_the_choices_of_every_variable_are_there(monitored: Monitored) -> None:
    for uid, dashboard in dashboards().items():
        if uid in TRIED_ELSEWHERE:
            continue
        for variable in dashboard["templating"]["list"]:
            if variable["type"] != "query":
                continue
            matched = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
            assert matched is not None, variable
            choices = monitored.prometheus.label_values(matched[2], filled_in(matched[1], VARIABLES))
            assert choices, (uid, variable["name"])


def test_figures_are_those_of_what_went_through(monitored: Monitored) -> None:
    """Some that are easy to get wrong: by hand, against what the load does."""
    panels = {one.panel: one.expression for one in of_the_cluster()}

    def value(panel: str) -> float:
        [one] = monitored.prometheus.query(filled_in(panels[panel], VARIABLES))
        return float(one["value"][1])

    assert value("bmq / Cluster: Leading controllers") == 1
    assert value("bmq / Cluster: Nodes") == 5
    assert value("bmq / Cluster: Partitions without an owner") == 0
    assert value("bmq / Cluster: Clocks off") == 0
    per_gib = value("bmq / Brokers and store: Requests per GiB written")
    dollars = value("bmq / Brokers and store: Dollars per GiB written")
    # Two brokers, a create each 20 ms at most, about 1 MB/s: up to 100 creates a second and 1000 s a GiB; every create
    # is dearer than any get.
    assert 1_000 < per_gib < 500_000
    assert per_gib * 0.0004 / 1000 < dollars < per_gib * 0.005 / 1000

    def lags_now() -> dict[str, float]:
        found = monitored.prometheus.query("sum by (group) (bmq_group_lag_records)")
        return {one["metric"]["group"]: float(one["value"][1]) for one in found}

    lags = until(
        lags_now,
        "what is written, and not read by the group that lags",
        DATA_WITHIN_S,
        holds=lambda found: found.get(LAGGING, 0) > 1_000,
        every_s=0.2,
    )
    assert lags[KEEPING_UP] < lags[LAGGING]
    of_lanes = {
        one["metric"]["group"]: one["metric"].get("lane") for one in monitored.prometheus.query("bmq_group_lag_records")
    }
    assert of_lanes == {LAGGING: None, KEEPING_UP: None, OF_THE_LANE: LANE}
    assert value("bmq / Lanes: Lanes") == 2
    [share] = monitored.prometheus.query(filled_in(panels["bmq / Lanes: Share of the base"], VARIABLES))
    assert 0.4 < float(share["value"][1]) < 0.9, "two of the three that write much are of the base"


def test_every_metric_that_an_alert_takes_is_scraped(monitored: Monitored) -> None:
    there = monitored.prometheus.names()
    taken = {
        (rule["alert"], metric)
        for file, rules in alerts().items()
        if file not in TRIED_ELSEWHERE
        for rule in rules
        for metric in metrics_in(rule["expr"])
    }
    assert len({alert for alert, _ in taken}) >= 15
    assert [(alert, metric) for alert, metric in sorted(taken) if metric not in there] == []


def test_every_metric_that_is_scraped_is_on_the_page_of_metrics(monitored: Monitored) -> None:
    there = {name for name in monitored.prometheus.names() if name.startswith("bmq_")}
    listed = {one.name: one.kind for _, modules in SECTIONS for module in modules for one in metrics_of(module)}
    told = {name: re.sub(r"_(bucket|sum|count)$", "", name) if name not in listed else name for name in there}
    assert {name for name, family in told.items() if family not in listed} == set()


def test_a_node_tells_few_series_however_much_goes_through_it(monitored: Monitored) -> None:
    counts = {
        one["metric"]["instance"]: int(one["value"][1])
        for one in monitored.prometheus.query('count by (instance) ({cluster="demo"})')
    }
    assert len(counts) == 6
    assert max(counts.values()) < SERIES_MAX, counts


def test_a_cluster_that_is_well_raises_no_alert(monitored: Monitored) -> None:
    rules = [
        rule
        for file, rules in alerts().items()
        if file not in TRIED_ELSEWHERE
        for rule in rules
        if rule["alert"] not in OF_A_BUSY_MACHINE
    ]
    assert len(rules) > 15
    raised = {rule["alert"]: series for rule in rules if (series := monitored.prometheus.query(rule["expr"]))}
    assert raised == {}
