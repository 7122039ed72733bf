"""An alert from its cause to its end: a real Prometheus evaluates the rules over a real cluster whose only controller
stands still.
"""

import os
import signal
from pathlib import Path

import pytest
from dashboard_files import RULES
from prometheus_process import Prometheus
from test_monitoring_live import targets_of
from tests.waiting import until
from up_nodes import UpNodes

CONTROLLER = 201
FIRES_S = 120
"""An alert is one of what has been so for a while."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_a_controller_that_stands_still_raises_the_alert_and_one_that_goes_on_ends_it(tmp_path: Path) -> None:
    cluster = UpNodes("1c1b1p", ["--data", str(tmp_path / "data"), "--no-fsync"], log=tmp_path / "bmq.log")
    try:
        targets = targets_of(cluster)
        prometheus = Prometheus(tmp_path, targets, rules=[RULES / "bmq-cluster.yaml", RULES / "bmq-clients.yaml"])
        try:
            prometheus.until_scraped(len(targets))
            assert prometheus.firing() == set()
            stopped = cluster.pids()[CONTROLLER]
            os.kill(stopped, signal.SIGSTOP)
            try:
                until(prometheus.firing, "the alert to fire", FIRES_S, holds=lambda firing: "BmqNoLeader" in firing)
                assert prometheus.firing() == {"BmqNoLeader"}
                assert prometheus.annotations("BmqNoLeader")["summary"] == "No controller of team/demo leads"
            finally:
                os.kill(stopped, signal.SIGCONT)
            until(prometheus.firing, "no alert to fire", FIRES_S, holds=lambda firing: not firing)
        finally:
            prometheus.close()
    finally:
        cluster.close()
