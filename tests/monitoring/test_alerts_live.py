"""Alerts from their cause to their end: a real Prometheus evaluates the rules over a real cluster of which one process
stands still.
"""

import os
import re
import signal
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewTopic
from dashboard_files import RULES
from lane_clients import BASE, admin, consumer, make_lane, poll_values, write
from prometheus_process import Prometheus
from test_monitoring_live import targets_of
from tests.waiting import until
from up_nodes import UpNodes

CONTROLLER, BROKER = 201, 101
FIRES_S = 120
"""An alert is one of what has been so for a while."""
FOR_S = 10
"""How long, where a test is not to wait for minutes."""

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


def test_a_base_that_does_not_say_how_far_it_got_raises_the_alert_of_the_lane_that_waits(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(re.sub(r"for: \d+m\b", f"for: {FOR_S}s", (RULES / "bmq-clients.yaml").read_text()))
    arguments, soon = ["--data", str(tmp_path / "data"), "--no-fsync"], {"BMQ_LANE_GRACE_MS": "3000"}
    cluster = UpNodes("1c1b1p", arguments, environment=soon, log=tmp_path / "bmq.log")
    try:
        targets = targets_of(cluster)
        prometheus = Prometheus(tmp_path, targets, rules=[rules])
        try:
            prometheus.until_scraped(len(targets))
            client = admin(cluster.servers, BASE)  # whose answers go with it
            client.create_topics([NewTopic("orders", num_partitions=2)])["orders"].result(20)
            make_lane(cluster.admin, "dev", fallback="base")
            write(cluster.servers, "dev", "orders", ["to the base"])
            base = consumer(cluster.servers, BASE)
            base.assign([TopicPartition("orders", number, 0) for number in (0, 1)])
            assert poll_values(base, 1) == ["to the base"]
            base.close()
            assert prometheus.firing() == set()

            broker = cluster.pids()[BROKER]
            inside = consumer(cluster.servers, "dev")  # which belongs to no group: coordinators are on that broker
            os.kill(broker, signal.SIGSTOP)
            try:
                inside.assign([TopicPartition("orders", number, 0) for number in (0, 1)])

                def firing() -> set[str]:
                    assert poll_values(inside, 1, timeout_s=0.1) == []
                    return prometheus.firing()

                until(firing, "the alert to fire", FIRES_S, holds=lambda names: "BmqLaneConsumersWait" in names)
                summary = prometheus.annotations("BmqLaneConsumersWait")["summary"]
                assert summary == "Consumers of lane dev of team/demo wait for their turn"
            finally:
                os.kill(broker, signal.SIGCONT)
            until(prometheus.firing, "no alert to fire", FIRES_S, holds=lambda names: not names)
            write(cluster.servers, "dev", "orders", ["in the lane"])
            assert poll_values(inside, 1) == ["in the lane"]
            inside.close()
        finally:
            prometheus.close()
    finally:
        cluster.close()
