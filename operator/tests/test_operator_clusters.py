"""A Cluster's status from what was found, addresses of listeners, and what counts as a difference."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from kube_of_a_test import CLUSTER, KubeOfATest, context_of

from bmq.runtime.system import SystemRng
from bmq_operator.applied import covers
from bmq_operator.clusters.asking import Answer
from bmq_operator.clusters.existing import Existing
from bmq_operator.clusters.listeners import advertised_file, listener_statuses, node_address
from bmq_operator.clusters.minio import volume_note
from bmq_operator.clusters.nodes import ClusterState, Node, Pod, by_own_clock, pods_seen, state_from
from bmq_operator.clusters.reconcile import reconcile
from bmq_operator.clusters.report import Found, report
from bmq_operator.clusters.upgrade import Wait
from bmq_operator.conditions import Finding, condition
from bmq_operator.waits import Waits
from bmq_resources.cluster import Cluster, ClusterStatus

PODS = tuple(
    Pod(name=f"demo-{role}-0", component=role, ordinal=0, ready=True, outdated=False, image="bmq:1")
    for role in ("controller", "broker", "proxy")
)
STATE = ClusterState(nodes={pod.node_id: Node(node_id=pod.node_id, alive=True) for pod in PODS}, store_ok=True)
FOUND = Found(pods=PODS, wanted={"controller": 1, "broker": 1, "proxy": 1}, answer=Answer(state=STATE))


def cluster(**spec: Any) -> Cluster:
    return Cluster.model_validate({"metadata": {"name": "demo", "namespace": "prod", "generation": 3}, "spec": spec})


def ready(found: Found, **spec: Any) -> tuple[str, str, str]:
    one = condition(report(cluster(**spec), found, now_ms=0).conditions)
    assert one is not None
    assert one.observed_generation == 3
    return one.status, one.reason, one.message


def test_ready_is_true_only_with_a_leader_all_pods_all_nodes_and_the_store() -> None:
    assert ready(FOUND)[:2] == ("True", "Ready")


def test_a_pod_that_is_not_ready_is_told_by_its_role() -> None:
    pods = (*PODS[:1], replace(PODS[1], ready=False), PODS[2])
    assert ready(replace(FOUND, pods=pods)) == ("False", "PodsNotReady", "waiting for pods: broker 0 of 1 ready")


def test_what_keeps_pods_from_being_ready_goes_before_how_many_are_missing() -> None:
    trouble = Finding(status="False", reason="ImageUnavailable", message="no such image")
    assert ready(replace(FOUND, pods=(), trouble=trouble))[1] == "ImageUnavailable"
    assert ready(replace(FOUND, trouble=trouble))[1] == "Ready"


def test_an_obstacle_in_the_spec_goes_before_everything_else_though_all_pods_run() -> None:
    obstacle = Finding(status="False", reason="SecretMissing", message="there is no Secret 'keys'")
    status = report(cluster(), replace(FOUND, obstacle=obstacle), now_ms=0)
    assert [(one.type, one.reason) for one in status.conditions] == [
        ("Ready", "SecretMissing"),
        ("Progressing", "SecretMissing"),
        ("StoreAvailable", "Answers"),
    ]


def test_a_store_that_does_not_answer_is_a_condition_of_its_own() -> None:
    broken = replace(FOUND, answer=Answer(state=replace(STATE, store_ok=False, store_detail="list: timed out")))
    status = report(cluster(), broken, now_ms=0)
    assert ready(broken)[1] == "StoreUnavailable"
    found = condition(status.conditions, "StoreAvailable")
    assert found is not None
    assert (found.status, found.message) == ("False", "list: timed out")


def test_a_node_that_is_not_alive_to_the_leader_is_not_ready_whatever_kubernetes_says() -> None:
    nodes = dict(STATE.nodes) | {1000: Node(node_id=1000, alive=False)}
    assert ready(replace(FOUND, answer=Answer(state=replace(STATE, nodes=nodes)))) == (
        "False",
        "NodesMissing",
        "not alive to the leading controller: demo-broker-0",
    )


def test_a_paused_cluster_says_so() -> None:
    found = condition(
        report(cluster(paused=True), replace(FOUND, step=Wait(reason="Upgrading", message="x")), now_ms=0).conditions,
        "Progressing",
    )
    assert found is not None
    assert (found.status, found.reason) == ("False", "Paused")


def test_it_is_not_ready_in_the_middle_of_a_roll_though_all_pods_are() -> None:
    step = Wait(reason="Upgrading", message="before the next one is replaced: demo-broker-0 is to work for 20 s first")
    assert ready(replace(FOUND, step=step, of_base=step))[:2] == ("False", "Upgrading")
    assert ready(replace(FOUND, step=step))[:2] == ("True", "Ready"), "a lane's roll is the lane's own affair"
    assert ready(replace(FOUND, step=step, of_base=step), paused=True)[1] == "Paused"


def test_what_is_not_applied_during_a_pause_is_not_ready() -> None:
    held = [
        "to make ConfigMap demo-config-1",
        "to change StatefulSet demo-broker",
        "to make Service a",
        "to make Service b",
    ]
    status, reason, text = ready(replace(FOUND, held=held), paused=True)
    assert (status, reason) == ("False", "Paused")
    assert "there is something to do: to make ConfigMap demo-config-1, " in text and text.endswith(" and 1 more")
    assert ready(FOUND, paused=True)[:2] == ("True", "Ready")


def test_partitions_without_an_owner_are_told_by_ready() -> None:
    assert ready(replace(FOUND, answer=Answer(state=replace(STATE, unowned=3))))[:2] == ("False", "PartitionsUnowned")
    assert "3 partitions have no owner" in ready(replace(FOUND, answer=Answer(state=replace(STATE, unowned=3))))[2]


def test_a_store_that_was_away_is_away_until_somebody_says_otherwise() -> None:
    nobody = Answer(finding=Finding(status="Unknown", reason="NoAnswer", message="no controller answers"))
    away = report(
        cluster(),
        replace(FOUND, answer=Answer(state=replace(STATE, store_ok=False, store_detail="list: timed out"))),
        now_ms=0,
    )

    def after(found: Found, status: ClusterStatus) -> tuple[tuple[str, str], tuple[str, str], ClusterStatus]:
        new = report(cluster().model_copy(update={"status": status}), found, now_ms=1)
        first, store = condition(new.conditions), condition(new.conditions, "StoreAvailable")
        assert first is not None
        assert store is not None
        return (first.status, first.reason), (store.status, store.reason), new

    gone = ("False", "StoreUnavailable")
    *said, status = after(replace(FOUND, answer=nobody), away)
    assert said == [gone, gone]
    *said, status = after(replace(FOUND, answer=nobody, pods=()), status)
    assert said == [gone, gone]
    *said, status = after(FOUND, status)
    assert said == [("True", "Ready"), ("True", "Answers")]
    assert after(replace(FOUND, answer=nobody), status)[:2] == (("Unknown", "NoAnswer"), ("Unknown", "NotAsked"))


def test_a_controller_that_does_not_lead_says_that_the_store_is_away() -> None:
    finding = Finding(status="False", reason="NoLeader", message="no controller leads")
    assert ready(replace(FOUND, answer=Answer(finding=finding)))[1] == "NoLeader"
    assert ready(replace(FOUND, answer=Answer(finding=finding, store_trouble="list: timed out")))[1:] == (
        "StoreUnavailable",
        "list: timed out",
    )


def test_before_there_is_a_pod_it_is_on_its_way_and_not_done() -> None:
    kube = KubeOfATest(CLUSTER | {"metadata": CLUSTER["metadata"] | {"uid": "u-1"}})
    context = replace(context_of(kube, "http://127.0.0.1:1", {}), rng=SystemRng())
    one = Cluster.model_validate(kube.manifests["Cluster", "shop", "bmq"])
    outcome = asyncio.run(reconcile(context, one))
    assert isinstance(outcome.status, ClusterStatus)
    said = {found.type: (found.status, found.reason) for found in outcome.status.conditions}
    assert said["Progressing"] == ("True", "Starting")
    assert said["Ready"][0] == "False"
    assert ("StatefulSet", "shop", "bmq-minio") in kube.manifests
    assert ("StatefulSet", "shop", "bmq-broker") not in kube.manifests


def test_pods_of_lanes_and_of_minio_are_not_counted_as_the_bases() -> None:
    def made(name: str, component: str, lane: str = "") -> dict[str, Any]:
        labels = {"app.kubernetes.io/component": component, "bmq.io/lane": lane, "controller-revision-hash": "r1"}
        return {
            "metadata": {"name": name, "labels": labels},
            "spec": {"containers": [{"image": "bmq:1"}]},
            "status": {},
        }

    sets = {"proxy": {"metadata": {"generation": 1}, "status": {"updateRevision": "r2", "observedGeneration": 1}}}
    found = pods_seen(
        [made("demo-proxy-0", "proxy"), made("demo-lane-a-proxy-0", "proxy", "a"), made("demo-minio-0", "minio")],
        sets,
        now_ms=0,
    )
    assert [(pod.name, pod.outdated) for pod in found] == [("demo-proxy-0", True)]


def test_a_pod_on_a_machine_whose_clock_is_ahead_has_worked_since_it_was_first_seen_so() -> None:
    def seen(now_ms: int, *, since: str = "2001-09-09T02:46:40Z") -> float:
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": since}
        made = {
            "metadata": {"name": "demo-proxy-0", "uid": "u", "labels": {"app.kubernetes.io/component": "proxy"}},
            "spec": {"containers": [{"image": "bmq:1"}]},
            "status": {"conditions": [ready]},
        }
        [pod] = by_own_clock(pods_seen([made], {}, now_ms=now_ms), waits, now_ms=now_ms)
        return pod.worked_s

    waits, now_ms = Waits(), 1_000_000_000_000
    assert [seen(now_ms), seen(now_ms + 20_000)] == [0.0, 20.0]
    assert seen(now_ms + 21_000, since="2001-09-09T02:47:00Z") == 0.0, "it began anew"
    assert seen(now_ms + 3_600_000) == 0.0
    assert seen(now_ms + 3_601_000) == 1.0


def test_what_kubernetes_adds_is_no_difference_and_what_somebody_changed_is() -> None:
    wanted = {"spec": {"replicas": 2, "containers": [{"name": "a", "env": []}]}}
    there = {
        "spec": {"replicas": 2, "paused": False, "containers": [{"name": "a", "env": [], "image": "x"}]},
        "status": {},
    }
    assert covers(there, wanted)
    assert not covers(there | {"spec": there["spec"] | {"replicas": 3}}, wanted)  # type: ignore[operator]
    assert not covers({"spec": {"replicas": 2}}, wanted)
    assert not covers([1, 2], [1])


@pytest.mark.parametrize(
    ("there", "wanted", "same"),
    [
        ("500m", "0.5", True),
        ("1Gi", "1024Mi", True),
        ("2k", "2000", True),
        ("1", 1, True),
        ("1500M", "1.5G", True),
        ("334m", "0.3333", True),
        ("1m", "0.0001", True),
        ("1E", "1000P", True),
        ("1Ei", "1024Pi", True),
        ("1E", 10**18, True),
        ("1e3", "1000", True),
        ("12E2", "1200", True),
        ("1e-3", "1m", True),
        ("1u", "0.000001", True),
        ("9223372036854775807", "9" * 30, True),
        ("1E", "1Ei", False),
        ("1E", "1P", False),
        ("1e3", "1001", False),
        ("333m", "0.3333", False),
        ("1G", "1Gi", False),
        ("5", "5m", False),
        (None, "5m", False),
    ],
)
def test_a_quantity_that_kubernetes_writes_in_a_way_of_its_own_is_no_difference(
    there: str | None, wanted: str | int, same: bool
) -> None:
    found = {} if there is None else {"cpu": there}
    assert covers({"resources": {"requests": found}}, {"resources": {"requests": {"cpu": wanted}}}) is same
    assert covers({"env": [{"name": "A", "value": there}]}, {"env": [{"name": "A", "value": wanted}]}) is (
        there == wanted
    ), "of other texts it is one"


def test_what_kubernetes_leaves_out_as_it_is_empty_is_no_difference() -> None:
    wanted = {"affinity": {"nodeAffinity": None, "podAffinity": {"preferred": [], "required": {}}}}
    assert covers({"affinity": {"podAffinity": {}}}, wanted)
    assert not covers({"affinity": {"nodeAffinity": {"a": 1}, "podAffinity": {}}}, wanted)
    assert not covers({"affinity": {}}, {"affinity": {"podAffinity": {"required": {"a": ""}}}})
    assert not covers({}, {"replicas": 0}) and not covers({}, {"paused": False}) and not covers({}, {"text": ""})
    assert covers({"env": [{"name": "A"}]}, {"env": [{"name": "A", "value": ""}]})
    assert not covers({"env": [{"name": "A", "value": "x"}]}, {"env": [{"name": "A", "value": ""}]})


def service(name: str, *, node_port: int = 0, ingress: list[dict[str, str]] | None = None) -> dict[str, Any]:
    return {
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"ports": [{"port": 9094, **({"nodePort": node_port} if node_port else {})}]},
        "status": {"loadBalancer": {"ingress": ingress or []}},
    }


def existing(*services: dict[str, Any]) -> Existing:
    pods = tuple({"metadata": {"name": f"demo-proxy-{n}"}, "spec": {"nodeName": f"n{n}"}} for n in range(2))
    return Existing(objects={("Service", one["metadata"]["name"]): one for one in services}, pods=pods)


NODES = {"n0": "10.0.0.1", "n1": "fd00::2"}


def test_a_node_port_is_told_by_the_address_of_the_node_that_the_proxy_is_on() -> None:
    one = cluster(proxies={"replicas": 2}, listeners=[{"name": "ext"}])
    there = existing(
        *(service(f"demo-ext-{n}", node_port=31000 + n) for n in range(2)),
        service("demo-ext-bootstrap", node_port=30000),
    )
    assert advertised_file(one, there, NODES) == "ext.0=10.0.0.1:31000\next.1=[fd00::2]:31001\n"
    assert [(s.name, s.bootstrap_servers) for s in listener_statuses(one, there, NODES)] == [("ext", "10.0.0.1:30000")]


def test_a_load_balancer_without_an_address_yet_is_left_out() -> None:
    one = cluster(proxies={"replicas": 2}, listeners=[{"name": "lb", "type": "LoadBalancer", "port": 9095}])
    there = existing(
        service("demo-lb-0", ingress=[{"ip": "1.2.3.4"}]), service("demo-lb-1"), service("demo-lb-bootstrap")
    )
    assert advertised_file(one, there, {}) == "lb.0=1.2.3.4:9095\n"
    assert listener_statuses(one, there, {})[0].bootstrap_servers == ""


def test_an_advertised_host_stands_for_each_proxy_by_its_number() -> None:
    one = cluster(
        proxies={"replicas": 2},
        listeners=[{"name": "lb", "type": "LoadBalancer", "port": 9095, "advertisedHost": "kafka-{ordinal}.example"}],
    )
    there = existing(*(service(f"demo-lb-{n}") for n in range(2)))
    assert advertised_file(one, there, {}) == "lb.0=kafka-0.example:9095\nlb.1=kafka-1.example:9095\n"


def test_of_a_nodes_addresses_the_one_that_reaches_furthest_is_told() -> None:
    addresses = [
        {"type": "Hostname", "address": "h"},
        {"type": "InternalIP", "address": "10.0.0.1"},
        {"type": "ExternalIP", "address": "1.2.3.4"},
    ]
    assert node_address({"status": {"addresses": addresses}}) == "1.2.3.4"
    assert node_address({"status": {"addresses": addresses[:2]}}) == "10.0.0.1"


def volume(size: str, storage_class: str = "standard") -> dict[str, Any]:
    return {"spec": {"resources": {"requests": {"storage": size}}, "storageClassName": storage_class}}


def with_volume(**minio: Any) -> Cluster:
    return cluster(store={"minio": {"embedded": True, **minio}})


def test_a_size_of_the_volume_that_cannot_be_had_any_more_is_told() -> None:
    there = {"spec": {"volumeClaimTemplates": [volume("10Gi")]}}
    assert volume_note(with_volume(), there, None) is None
    assert volume_note(with_volume(storage="20Gi"), None, None) is None
    for claim in (None, volume("10Gi")):
        note = volume_note(with_volume(storage="20Gi"), there, claim)
        assert note is not None
        assert "it has 10Gi, and 20Gi was written" in note.message


def test_of_a_volume_that_was_enlarged_by_its_claim_as_the_note_says_no_more_is_told() -> None:
    there = {"spec": {"volumeClaimTemplates": [volume("10Gi")]}}
    assert volume_note(with_volume(storage="20Gi"), there, volume("20Gi")) is None
    note = volume_note(with_volume(storage="10Gi"), there, volume("20Gi"))
    assert note is not None and "it has 20Gi, and 10Gi was written" in note.message


@pytest.mark.parametrize(
    ("written", "kept"), [("1024Mi", "1Gi"), ("0.5Gi", "512Mi"), (10737418240, "10Gi"), ("1000M", "1G")]
)
def test_a_size_that_kubernetes_writes_in_its_own_way_is_the_one_that_was_written(written: object, kept: str) -> None:
    assert (
        volume_note(with_volume(storage=written), {"spec": {"volumeClaimTemplates": [volume(kept)]}}, volume(kept))
        is None
    )


def test_of_a_storage_class_that_cannot_be_had_any_more_the_class_is_told() -> None:
    note = volume_note(
        with_volume(storageClassName="fast"), {"spec": {"volumeClaimTemplates": [volume("10Gi")]}}, volume("10Gi")
    )
    assert note is not None
    assert "it has the class standard, and fast was written" in note.message and "10Gi" not in note.message


def test_partitions_that_wait_for_a_lanes_own_brokers_are_told_and_hold_nothing_up() -> None:
    answer = {"cluster_id": "c", "partitions_unowned": 5, "partitions_unowned_of_lanes": 5}
    state = state_from(answer, [], {"ok": True, "steps": []})
    assert (state.unowned, state.unowned_of_lanes) == (0, 5)
    status, reason, text = ready(
        replace(
            FOUND, answer=Answer(state=replace(STATE, unowned=state.unowned, unowned_of_lanes=state.unowned_of_lanes))
        )
    )
    assert (status, reason) == ("True", "Ready") and "5 partitions wait for brokers of their lane's own" in text
    of_an_older_controller = {"cluster_id": "c", "partitions_unowned": 5}
    assert state_from(of_an_older_controller, [], {"ok": True, "steps": []}).unowned == 5
