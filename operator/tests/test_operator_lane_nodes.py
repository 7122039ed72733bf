"""Nodes of lanes: replaced one at a time like the base's, and counted in the Cluster's status."""

from dataclasses import replace
from typing import Any

import pytest

from bmq_operator.clusters.lane_nodes import PATIENCE_S, LaneNodes, lanes_status, next_lane_step
from bmq_operator.clusters.names import Component
from bmq_operator.clusters.nodes import Pod, lanes_seen, pods_seen
from bmq_operator.clusters.upgrade import DeletePod, Idle, Wait
from bmq_operator.kube import Manifest
from bmq_operator.waits import Waits


def pod(component: Component, ordinal: int, *, ready: bool = True, outdated: bool = False, lane: str = "dev") -> Pod:
    return Pod(
        name=f"c-lane-{lane}-{component}-{ordinal}",
        component=component,
        ordinal=ordinal,
        ready=ready,
        outdated=outdated,
        lane=lane,
    )


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
def test_nothing_is_taken_away_before_the_others_are_there_and_have_worked(
    other: Pod, settled: bool, word: str
) -> None:
    step = next_lane_step(nodes(OLD, other, settled=settled), settle_s=20)
    assert isinstance(step, Wait)
    assert word in step.message


def test_one_that_is_broken_and_old_is_replaced_at_once_unless_the_newest_settings_break_nodes() -> None:
    broken = replace(OLD, ready=False)
    assert isinstance(next_lane_step(nodes(broken, NEW), settle_s=20), DeletePod)
    assert isinstance(next_lane_step(nodes(broken, replace(NEW, ready=False, restarts=2)), settle_s=20), Wait)
    assert isinstance(next_lane_step(nodes(broken, replace(NEW, ready=False, held_back=True)), settle_s=20), Wait)
    proxy, broker = pod("proxy", 0, ready=False, outdated=True), replace(pod("broker", 0, ready=False), held_back=True)
    assert isinstance(next_lane_step(nodes(broker, proxy), settle_s=20), Wait), "what breaks brokers may break proxies"


def test_settings_of_which_kubernetes_makes_no_pod_reach_no_other_one_of_the_lane_that_is_broken() -> None:
    broken = nodes(replace(OLD, ready=False))["dev"]
    assert isinstance(
        next_lane_step({"dev": replace(broken, wanted=2, unmade=frozenset(("proxy",)))}, settle_s=20), Wait
    )
    assert isinstance(
        next_lane_step(
            {"dev": replace(broken, pods=(*broken.pods, NEW), wanted=3, unmade=frozenset(("proxy",)))}, settle_s=20
        ),
        DeletePod,
    )


def test_a_lane_beyond_its_quota_gets_corrected_settings_where_those_need_no_other_room() -> None:
    broken = nodes(replace(OLD, ready=False, same_room=True))["dev"]
    beyond = replace(broken, wanted=2, unmade=frozenset(("proxy",)), over_quota=frozenset(("proxy",)))
    assert isinstance(next_lane_step({"dev": beyond}, settle_s=20), DeletePod)
    assert isinstance(next_lane_step({"dev": replace(beyond, over_quota=frozenset())}, settle_s=20), Wait)


def test_a_lane_that_cannot_go_on_does_not_keep_another_from_it() -> None:
    stuck = nodes(OLD, replace(NEW, ready=False))
    other = nodes(pod("proxy", 0, outdated=True, lane="qa"), lane="qa")
    step = next_lane_step(stuck | other, settle_s=20)
    assert isinstance(step, DeletePod)
    assert "lane qa" in step.message


NEVER_READY = replace(NEW, ready=False)
OLD_KEYS = replace(OLD, old_keys=True, uid="uid-of-0")


def waited(*pods: Pod, seconds: float = PATIENCE_S + 20) -> dict[str, LaneNodes]:
    return {lane: replace(one, waited_s=seconds) for lane, one in nodes(*pods).items()}


def test_the_last_node_that_works_keeps_its_settings_for_ever_where_the_newest_never_worked() -> None:
    for seconds in (0, PATIENCE_S * 1_000):
        step = next_lane_step(waited(OLD, NEVER_READY, pod("broker", 0), seconds=seconds), settle_s=20)
        assert isinstance(step, Wait)
        assert "all the same" not in step.message


def test_old_keys_go_after_a_while_even_from_the_last_node_that_works() -> None:
    before = next_lane_step(waited(OLD_KEYS, NEVER_READY, seconds=PATIENCE_S + 19), settle_s=20)
    assert isinstance(before, Wait)
    assert f"after {PATIENCE_S + 20:g} s {OLD.name} is replaced all the same".lower() in before.message.lower()
    step = next_lane_step(waited(OLD_KEYS, NEVER_READY), settle_s=20)
    assert isinstance(step, DeletePod)
    assert (step.pod, step.uid) == (OLD.name, "uid-of-0")


@pytest.mark.parametrize(
    "other",
    [replace(NEW, worked_s=3, restarts=9), replace(NEVER_READY, restarts=3), None],
    ids=["ready now and then", "ends again and again", "not made, as of a quota"],
)
def test_old_keys_go_whatever_keeps_the_others_from_working(other: Pod | None) -> None:
    found = {
        "dev": LaneNodes(
            lane="dev", pods=(OLD_KEYS, *([other] if other else [])), wanted=2, settled=True, waited_s=PATIENCE_S + 20
        )
    }
    assert isinstance(next_lane_step(found, settle_s=20), DeletePod)


def test_what_serves_nobody_loses_its_old_keys_before_what_serves() -> None:
    broken = replace(OLD_KEYS, ordinal=2, name="c-lane-dev-proxy-2", ready=False)
    step = next_lane_step(waited(OLD_KEYS, replace(NEVER_READY, restarts=1), broken), settle_s=20)
    assert isinstance(step, DeletePod)
    assert step.pod == broken.name


def test_settings_that_work_on_another_node_of_the_role_go_on_after_a_while() -> None:
    stuck = pod("proxy", 2, ready=False)
    assert isinstance(next_lane_step(waited(OLD, NEW, stuck, seconds=0), settle_s=20), Wait)
    step = next_lane_step(waited(OLD, NEW, stuck), settle_s=20)
    assert isinstance(step, DeletePod) and step.pod == OLD.name
    assert isinstance(next_lane_step(waited(OLD, replace(NEW, worked_s=3), stuck), settle_s=20), Wait), (
        "it has yet to prove itself"
    )
    of_another_role = waited(pod("broker", 0, outdated=True), NEW, pod("broker", 1, ready=False))
    assert isinstance(next_lane_step(of_another_role, settle_s=20), Wait)


def test_the_wait_is_counted_from_when_the_same_nodes_were_left_and_no_change_of_the_lane_begins_it_anew() -> None:
    waits = Waits()

    def waited_s(now_ms: int, *pods: Pod) -> float:
        return waits.waited_s("uid-of-c", "dev", nodes(*pods)["dev"].left, now_ms=now_ms)

    assert waited_s(1_000, OLD_KEYS, NEVER_READY) == 0
    # by its author, to other settings that do not work either
    changed = replace(NEVER_READY, outdated=True, uid="uid-of-1")
    assert waited_s(61_000, OLD_KEYS, changed) == 60
    assert waited_s(71_000, replace(OLD_KEYS, deleting=True), NEVER_READY) == 0
    assert waited_s(81_000, replace(OLD_KEYS, uid="uid-of-another"), NEVER_READY) == 0
    assert waited_s(82_000, replace(OLD_KEYS, uid="uid-of-another"), NEVER_READY) == 1


def test_they_count_in_the_clusters_status() -> None:
    status = lanes_status(nodes(OLD, NEW) | nodes(pod("broker", 0, ready=False, lane="qa"), lane="qa"))
    assert (status.desired, status.replicas, status.ready, status.updated) == (3, 3, 2, 2)


def test_a_pod_tells_its_lane_how_often_it_ended_and_since_when_it_works() -> None:
    labels = {"app.kubernetes.io/component": "proxy", "bmq.io/lane": "dev", "controller-revision-hash": "r1"}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2001-09-09T01:46:40Z"}
    status = {"conditions": [ready], "containerStatuses": [{"restartCount": 3}]}
    manifest = {
        "metadata": {"name": "c-lane-dev-proxy-0", "labels": labels},
        "spec": {"containers": [{"image": "bmq:1"}]},
        "status": status,
    }
    sets = {"proxy": {"metadata": {}, "status": {"updateRevision": "r2"}}}
    [found] = pods_seen([manifest], sets, now_ms=1_000_000_007_000, lane="dev")
    assert (found.lane, found.restarts, found.worked_s, found.outdated) == ("dev", 3, 7.0, True)
    assert lanes_seen([manifest]) == ["dev"]


NO_ROOM: Manifest = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}


@pytest.mark.parametrize(
    ("status", "held_back"),
    [
        ({"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]}, True),
        ({"containerStatuses": [{"state": {"waiting": {"reason": "CreateContainerConfigError"}}}]}, True),
        (NO_ROOM, False),
        ({"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}, False),
        ({"containerStatuses": [{"state": {"running": {}}}]}, False),
        ({}, False),
    ],
)
def test_a_pod_tells_what_keeps_it_from_being_started(status: Manifest, held_back: bool) -> None:
    labels = {"app.kubernetes.io/component": "proxy", "bmq.io/lane": ""}
    manifest = {
        "metadata": {"name": "c-proxy-0", "labels": labels},
        "spec": {"containers": [{"image": "bmq:1"}]},
        "status": status,
    }
    [found] = pods_seen([manifest], {}, now_ms=0)
    assert (found.held_back, found.without_room) == (held_back, status == NO_ROOM)


SPREAD: Manifest = {"podAntiAffinity": {"preferred": [{"weight": 100}]}}
GIVEN: list[Manifest] = [
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists"},
    {"key": "node.kubernetes.io/unreachable", "operator": "Exists"},
]


def asks(image: str = "bmq:1", *, cpu: str = "1", **spec: Any) -> Manifest:
    return {"affinity": SPREAD, "containers": [{"image": image, "resources": {"requests": {"cpu": cpu}}}], **spec}


@pytest.mark.parametrize(
    ("has", "template", "same"),
    [
        (asks(tolerations=GIVEN), asks("bmq:2"), True),
        (asks(cpu="500m", nodeSelector={"disk": "fast"}), asks(cpu="0.5"), True),
        (asks(tolerations=[{"key": "mine"}, *GIVEN]), asks(tolerations=[{"key": "mine"}]), True),
        (asks(), asks(cpu="2"), False),
        (asks(), asks(nodeSelector={"disk": "fast"}), False),
        (asks(), asks(priorityClassName="high"), False),
        (asks(), asks(affinity={"nodeAffinity": {"required": []}}), False),
        (asks(tolerations=[{"key": "mine"}, *GIVEN]), asks(), False),
    ],
)
def test_a_pod_tells_whether_its_successor_needs_other_room(has: Manifest, template: Manifest, same: bool) -> None:
    labels = {"app.kubernetes.io/component": "proxy", "bmq.io/lane": ""}
    sets = {"proxy": {"metadata": {}, "spec": {"template": {"spec": template}}, "status": {"updateRevision": "r2"}}}
    [found] = pods_seen(
        [{"metadata": {"name": "c-proxy-0", "labels": labels}, "spec": has, "status": {}}], sets, now_ms=0
    )
    assert found.same_room is same
