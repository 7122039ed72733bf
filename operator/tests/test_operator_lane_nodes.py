"""Nodes of lanes: replaced one at a time like the base's, and counted in the Cluster's status."""

from dataclasses import replace

import pytest

from bmq_operator.clusters.lane_nodes import LaneNodes, lanes_status, next_lane_step
from bmq_operator.clusters.names import Component
from bmq_operator.clusters.nodes import Pod, lanes_seen, pods_seen
from bmq_operator.clusters.upgrade import DeletePod, Idle, Wait


def pod(component: Component, ordinal: int, *, ready: bool = True, outdated: bool = False, lane: str = "dev") -> Pod:
    return Pod(name=f"c-lane-{lane}-{component}-{ordinal}", component=component, ordinal=ordinal, ready=ready, outdated=outdated, lane=lane)


def nodes(*pods: Pod, lane: str = "dev", settled: bool = True) -> dict[str, LaneNodes]:
    return {lane: LaneNodes(lane=lane, pods=pods, wanted=len(pods), settled=settled)}


OLD, NEW = pod("proxy", 0, outdated=True), pod("proxy", 1)


def test_one_after_the_other_is_replaced() -> None:
    step = next_lane_step(nodes(OLD, NEW), settle_s=20)
    assert isinstance(step, DeletePod)
    assert step.pod == OLD.name
    assert "lane dev" in step.message
    assert isinstance(next_lane_step(nodes(NEW), settle_s=20), Idle)


@pytest.mark.parametrize(
    ("other", "settled", "word"),
    [
        (replace(NEW, ready=False), True, "1 of 2 pods are ready"),
        (replace(NEW, worked_s=3), True, "is to work for 20 s first"),
        (NEW, False, "has yet to see"),
    ],
)
def test_nothing_is_taken_away_before_the_others_are_there_and_have_worked(other: Pod, settled: bool, word: str) -> None:
    step = next_lane_step(nodes(OLD, other, settled=settled), settle_s=20)
    assert isinstance(step, Wait)
    assert word in step.message


def test_one_that_is_broken_and_old_is_replaced_at_once_unless_the_newest_settings_break_nodes() -> None:
    broken = replace(OLD, ready=False)
    assert isinstance(next_lane_step(nodes(broken, NEW), settle_s=20), DeletePod)
    assert isinstance(next_lane_step(nodes(broken, replace(NEW, ready=False, restarts=2)), settle_s=20), Wait)


def test_a_lane_that_cannot_go_on_does_not_keep_another_from_it() -> None:
    stuck = nodes(OLD, replace(NEW, ready=False))
    other = nodes(pod("proxy", 0, outdated=True, lane="qa"), lane="qa")
    step = next_lane_step(stuck | other, settle_s=20)
    assert isinstance(step, DeletePod)
    assert "lane qa" in step.message


def test_they_count_in_the_clusters_status() -> None:
    status = lanes_status(nodes(OLD, NEW) | nodes(pod("broker", 0, ready=False, lane="qa"), lane="qa"))
    assert (status.desired, status.replicas, status.ready, status.updated) == (3, 3, 2, 2)


def test_a_pod_tells_its_lane_how_often_it_ended_and_since_when_it_works() -> None:
    labels = {"app.kubernetes.io/component": "proxy", "bmq.io/lane": "dev", "controller-revision-hash": "r1"}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2001-09-09T01:46:40Z"}
    status = {"conditions": [ready], "containerStatuses": [{"restartCount": 3}]}
    manifest = {"metadata": {"name": "c-lane-dev-proxy-0", "labels": labels}, "spec": {"containers": [{"image": "bmq:1"}]}, "status": status}
    sets = {"proxy": {"metadata": {}, "status": {"updateRevision": "r2"}}}
    [found] = pods_seen([manifest], sets, now_ms=1_000_000_007_000, lane="dev")
    assert (found.lane, found.restarts, found.worked_s, found.outdated) == ("dev", 3, 7.0, True)
    assert lanes_seen([manifest]) == ["dev"]
