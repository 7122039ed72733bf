"""Pods that Kubernetes refuses to make are in no status: what its events say of them is told with what helps."""

from typing import Any

import pytest
from clusters_world import World, cluster, doomed, run

from bmq_operator.kube import KubeProblem

QUOTA = (
    'create Pod prod-broker-0 in StatefulSet prod-broker failed error: pods "prod-broker-0" is forbidden: '
    "exceeded quota: compute."
)


def event(
    world: World, about: str, message: str, *, kind: str = "StatefulSet", at: str = "2001-09-09T01:50:00Z", **more: Any
) -> dict[str, Any]:
    there = world.there(kind, about)
    involved = {"kind": kind, "namespace": "shop", "name": about, "uid": there["metadata"]["uid"]}
    meta = {"name": f"{about}.{at}.{len(message)}", "namespace": "shop"}
    said = {"reason": "FailedCreate", "type": "Warning", "message": message, "lastTimestamp": at}
    return {"apiVersion": "v1", "kind": "Event", "metadata": meta, "involvedObject": involved, **said, **more}


def test_what_keeps_kubernetes_from_making_pods_is_told_until_they_are_there() -> None:
    async def use(world: World) -> None:
        await world.look("prod")
        assert (await world.look("prod"))[1] == "PodsNotReady"
        world.kube.keep(event(world, "prod-broker", "an older one", at="2001-09-09T01:49:00Z"))
        world.kube.keep(event(world, "prod-broker", QUOTA))
        world.kube.keep(
            event(world, "prod-broker", "create Pod successful", at="2001-09-09T02:00:00Z", reason="SuccessfulCreate")
        )
        stranger = event(world, "prod-broker", "of an earlier StatefulSet of this name", at="2001-09-09T03:00:00Z")
        stranger["involvedObject"]["uid"] = "another"
        world.kube.keep(stranger)
        status, reason, message = await world.look("prod")
        assert (status, reason) == ("False", "PodsRefused")
        assert "StatefulSet prod-broker" in message and "exceeded quota: compute. It is tried again" in message
        for name in ("controller", "broker", "proxy"):
            world.there("StatefulSet", f"prod-{name}")["status"] = {"replicas": 3, "observedGeneration": 1}
        assert (await world.look("prod"))[1] == "PodsNotReady", "they are made, and what was in the way is no more"

    run(use, cluster())


@pytest.mark.parametrize(("why", "replaced"), [(QUOTA, ["Pod prod-broker-0"]), ("violates PodSecurity", [])])
def test_what_is_broken_gets_newer_settings_though_a_quota_has_no_room_for_one_more(
    why: str, replaced: list[str]
) -> None:
    async def use(world: World) -> None:
        await world.look("prod")
        world.pods_are_made()
        world.kube.drop("Pod", "shop", "prod-broker-2")
        world.there("Pod", "prod-broker-0")["status"]["conditions"][0]["status"] = "False"
        for role, made in (("controller", 2), ("broker", 2), ("proxy", 2)):
            world.there("StatefulSet", f"prod-{role}")["status"] |= {"replicas": made, "updateRevision": "r2"}
        world.kube.keep(event(world, "prod-broker", why))
        world.kube.deleted.clear()
        await world.look("prod")
        assert world.kube.deleted == replaced

    run(use, cluster())


def test_the_pods_of_a_minio_that_are_refused_are_told() -> None:
    async def use(world: World) -> None:
        await world.look("prod")
        world.kube.keep(event(world, "prod-minio", "violates PodSecurity"))
        assert (await world.look("prod"))[1] == "PodsRefused"

    run(use, cluster(store={"minio": {"embedded": True}}))


def test_a_probe_that_does_not_run_is_told_though_the_cluster_goes_on_without_it() -> None:
    async def use(world: World) -> None:
        def told() -> dict[str, Any] | None:
            conditions = world.there("Cluster", "prod")["status"]["conditions"]
            return next((one for one in conditions if one["type"] == "ProbeRuns"), None)

        await world.look("prod")
        world.pods_are_made()
        for (kind, _, _), one in world.kube.manifests.items():
            if kind == "StatefulSet":
                one["status"]["replicas"] = one["spec"]["replicas"]
        await world.look("prod")
        assert told() is None
        world.kube.drop("Pod", "shop", "prod-probe-0")
        world.there("StatefulSet", "prod-probe")["status"]["replicas"] = 0
        world.kube.keep(event(world, "prod-probe", QUOTA))
        await world.look("prod")
        found = told()
        assert found is not None and (found["status"], found["reason"]) == ("False", "PodsRefused")
        assert "StatefulSet prod-probe" in found["message"]
        world.pods_are_made()
        unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
        world.there("Pod", "prod-probe-0")["status"] = {"conditions": [unschedulable]}
        world.there("StatefulSet", "prod-probe")["status"]["replicas"] = 1
        await world.look("prod")
        found = told()
        assert found is not None and (found["status"], found["reason"]) == ("False", "Unschedulable")

    run(use, cluster(probe={"enabled": True}))


def test_an_operator_that_may_read_no_events_goes_without() -> None:
    async def use(world: World) -> None:
        listed = world.kube.list

        async def without_events(kind: str, *arguments: Any, **more: Any) -> Any:
            if kind == "Event":
                raise KubeProblem(status=403, reason="Forbidden", message="no")
            return await listed(kind, *arguments, **more)

        world.kube.list = without_events  # type: ignore[method-assign]
        await world.look("prod")
        assert (await world.look("prod"))[1] == "PodsNotReady"

    run(use, cluster())


def test_a_job_that_gets_no_pod_is_told_by_the_cluster_that_goes() -> None:
    async def use(world: World) -> None:
        await world.look("prod")
        world.pods_are_made()
        await world.look("prod")
        world.begins_deletion("prod")
        for _ in range(4):
            await world.look("prod")
            world.pods_are_made()
        world.kube.keep(event(world, "prod-erase", "violates PodSecurity", kind="Job"))
        status, reason, message = await world.look("prod")
        assert (status, reason) == ("False", "EraseFailed") and "violates PodSecurity" in message

    run(use, doomed())


@pytest.mark.parametrize("component", ["proxies", "brokers"])
def test_pods_of_a_lane_that_are_refused_are_told_by_their_lane(component: str) -> None:
    from bmq_operator.lanes.plan import plan
    from bmq_operator.lanes.situation import Ready, Situation, present_from
    from bmq_operator.references import ClusterState
    from bmq_resources.lane import Lane, LaneStatus

    reads = {"enabled": False, "topics": ["*"], "bytes_per_second": 1_048_576}
    shown = present_from(
        {
            "version": "v1",
            "ttl_seconds": 0,
            "expires_ms": None,
            "own_brokers": False,
            "reads_base": reads,
            "topics": 7,
            "number": 1,
            "created_ms": 5,
        }
    )
    lane = Lane.model_validate(
        {"metadata": {"name": "dev", "namespace": "shop", "uid": "u"}, "spec": {component: {"replicas": 2}}}
    )
    lane = lane.model_copy(update={"status": LaneStatus(lane_name="dev", node_ids_from=20_000)})
    ready = {"proxies": Ready(there=1, ready=1), component: Ready(why="exceeded quota")}
    found = plan(
        Situation(lane=lane, cluster_name="shop/bmq", cluster=ClusterState.READY, now_ms=0, present=shown, **ready)
    )  # type: ignore[arg-type]
    assert found.finding.reason == f"{component.capitalize()}Starting"
    assert found.finding.message.endswith(
        f"2 {component} of the lane are ready: Kubernetes makes no more of them: exceeded quota"
    )
