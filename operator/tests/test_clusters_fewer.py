"""Fewer controllers or proxies: those that work stay as long as one that would stay does not."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from clusters_world import World, cluster, run
from rolling_world import Rolling

from bmq_operator.clusters.fewer import Fewer, fewer
from bmq_operator.clusters.nodes import Pod
from bmq_operator.clusters.pods import ADVERTISED_FILE

PROXIES = tuple(
    Pod(name=f"c-proxy-{one}", component="proxy", ordinal=one, ready=True, outdated=False) for one in range(4)
)


def changed(ordinal: int, pods: tuple[Pod, ...] = PROXIES, **how: Any) -> tuple[Pod, ...]:
    return tuple(replace(pod, **how) if pod.ordinal == ordinal else pod for pod in pods)


def told(pods: tuple[Pod, ...], *, wanted: int = 2, **more: Any) -> Fewer:
    return fewer(pods, "proxy", wanted=wanted, current=4, **more)


def test_those_at_the_end_go_where_those_that_stay_work() -> None:
    assert told(PROXIES) == Fewer(replicas=2)
    assert told(changed(3, ready=False)) == Fewer(replicas=2)
    assert told(PROXIES, wanted=0) == Fewer(replicas=0), "none is to stay"


@pytest.mark.parametrize("how", [{"ready": False}, {"deleting": True}, {"ready": False, "restarts": 3}])
def test_none_that_works_goes_while_one_that_would_stay_does_not(how: dict[str, Any]) -> None:
    assert told(changed(1, **how)) == Fewer(replicas=4, why="c-proxy-1, which would stay, is not ready")
    missing = tuple(pod for pod in PROXIES if pod.ordinal != 1)
    assert told(missing) == Fewer(replicas=4, why="c-proxy-1, which would stay, is not ready")
    both = changed(0, changed(1, **how), ready=False)
    assert told(both).why == "c-proxy-0, c-proxy-1, which would stay, are not ready"


def test_one_that_would_stay_has_to_have_worked_for_a_while() -> None:
    flaps = changed(0, worked_s=3, restarts=1)
    assert told(flaps, settle_s=20) == Fewer(replicas=4, why="c-proxy-0, which would stay, is to work for 40 s first")
    assert told(changed(0, worked_s=40, restarts=1), settle_s=20) == Fewer(replicas=2)
    assert told(changed(3, worked_s=3), settle_s=20) == Fewer(replicas=2), "it goes"


def test_what_does_not_work_goes_whatever_those_that_stay_do() -> None:
    assert told(changed(0, changed(3, ready=False), ready=False)).replicas == 3
    assert told(tuple(replace(pod, ready=False) for pod in PROXIES)) == Fewer(replicas=2)
    assert told(changed(0, PROXIES[:2], ready=False)) == Fewer(replicas=2), "those are not there"


def test_those_that_go_make_room_for_those_that_stay_one_after_the_other() -> None:
    pending = changed(0, ready=False, without_room=True)
    assert told(pending).replicas == 3
    assert told(changed(3, pending, deleting=True)).replicas == 3, "it leaves, and its room is not free yet"
    assert fewer(changed(3, pending, deleting=True), "proxy", wanted=2, current=3).replicas == 3
    assert told(changed(1, pending, ready=False)).replicas == 4, "something else keeps another one"
    both = changed(1, pending, ready=False, without_room=True)
    assert told(both).replicas == 3, "two others work"
    left = tuple(pod for pod in both if pod.ordinal != 3)
    assert fewer(left, "proxy", wanted=2, current=3).replicas == 3, "nobody would be left"
    assert fewer(pending, "proxy", wanted=1, current=4).replicas == 3
    missing = tuple(pod for pod in PROXIES if pod.ordinal != 1)
    assert told(missing, over_quota=frozenset(("proxy",))).replicas == 3


def test_there_are_never_to_be_more_than_there_are_to_be_so_far() -> None:
    assert fewer(changed(0, ready=False), "proxy", wanted=1, current=2).replicas == 2, "others are on their way out"


@pytest.mark.parametrize("how", [{"restarts": 1}, {"held_back": True}])
def test_one_that_the_newest_settings_broke_stays_while_others_have_yet_to_get_them(how: dict[str, Any]) -> None:
    old = tuple(replace(pod, outdated=True) for pod in PROXIES)
    broken = changed(2, old, outdated=False, ready=False, **how)
    assert told(broken) == Fewer(
        replicas=4,
        why="c-proxy-2, which would go, does not work with the newest settings, and c-proxy-0, which stays, has yet to "
        "get them: correct them, or delete the pod c-proxy-0, so that they are tried there",
    )
    assert told(changed(2, old, ready=False, **how)) == Fewer(replicas=2), "they were corrected"
    assert told(changed(2, ready=False, **how)) == Fewer(replicas=2), "all have them"
    assert told(changed(0, broken, outdated=False)) == Fewer(replicas=2), "another one works with them"
    assert told(changed(2, old, outdated=False, ready=False, without_room=True)) == Fewer(replicas=2)
    unmade = tuple(pod for pod in old if pod.ordinal != 2)
    assert told(unmade).replicas == 4, "nobody knows why Kubernetes does not make it"
    assert told(unmade, over_quota=frozenset(("proxy",))) == Fewer(replicas=2)


def rolling(use: Any, **counts: int) -> None:
    async def main() -> None:
        world = Rolling(lambda line: None, counts={"controllers": 1, "brokers": 1, "proxies": 1, **counts})
        for _ in range(20):
            await world.looks()
        await use(world)

    asyncio.run(main())


def names(world: Rolling, kind: str) -> list[str]:
    return sorted(name for found, _, name in world.kube.manifests if found == kind)


@pytest.mark.parametrize("listeners", [[], [{"name": "out", "type": "LoadBalancer", "port": 9094}]])
def test_what_leads_to_a_proxy_is_there_as_long_as_the_proxy_is(listeners: list[Any]) -> None:
    async def use(world: Rolling) -> None:
        world.change(listeners=listeners)
        for _ in range(100):
            await world.looks()
        before = names(world, "Service")
        world.without_room.add("prod-proxy-0")
        world.kube.drop("Pod", "shop", "prod-proxy-0")
        await world.looks()
        for name in before:
            if name.startswith("prod-out-"):
                world.there("Service", name)["status"] = {"loadBalancer": {"ingress": [{"hostname": name}]}}
        world.change(proxies={"replicas": 1})
        for _ in range(5):
            await world.looks()
        assert names(world, "Service") == before
        if listeners:
            told = world.there("ConfigMap", "prod-advertised")["data"][ADVERTISED_FILE]
            assert "out.1=prod-out-1:9094" in told
        world.without_room.clear()
        for _ in range(30):
            await world.looks()
        assert "prod-proxy-1" not in names(world, "Pod") and "prod-internal-1" not in names(world, "Service")

    rolling(use, proxies=2)


def test_ready_says_what_keeps_it_and_that_a_pause_does() -> None:
    async def use(world: Rolling) -> None:
        world.change(paused=True, proxies={"replicas": 1})
        await world.looks()
        assert world.ready("prod") == (
            "False",
            "Paused",
            "spec.paused is true, and there is something to do: the proxies above the first 1 go",
        )
        world.without_room.add("prod-proxy-0")
        world.kube.drop("Pod", "shop", "prod-proxy-0")
        world.change(paused=False)
        await world.looks()
        await world.looks()
        status, _, text = world.ready("prod")
        assert status == "False"
        assert "prod-proxy-0, which would stay, is not ready: prod-proxy-0 finds no node" in text
        assert "prod-proxy-1" in names(world, "Pod")

    rolling(use, proxies=2)


def autoscaled(world: World, **bounds: int) -> None:
    world.there("Cluster", "prod")["spec"]["proxies"] = {"autoscaling": {"enabled": True, **bounds}}


def bound(world: World) -> int:
    return int(world.there("HorizontalPodAutoscaler", "prod-proxy")["spec"]["maxReplicas"])


def scales(world: World, replicas: int) -> None:
    """As Kubernetes' autoscaler does."""
    nodes = world.there("StatefulSet", "prod-proxy")
    nodes["spec"]["replicas"] = replicas
    at = datetime.fromtimestamp(1, UTC).isoformat()
    entry = {"manager": "kube-controller-manager", "operation": "Update", "subresource": "scale", "time": at}
    nodes["metadata"]["managedFields"] = [{**entry, "fieldsV1": {"f:spec": {"f:replicas": {}}}}]
    world.pods_are_made()


async def with_five(world: World) -> None:
    for _ in range(2):  # what the operator applies then says nothing of their number any more
        await world.look("prod")
        scales(world, 5)


def test_an_autoscaler_is_told_of_a_lower_bound_once_those_that_stay_work() -> None:
    async def use(world: World) -> None:
        await with_five(world)
        world.there("Pod", "prod-proxy-0")["status"] = {"conditions": []}
        autoscaled(world, minReplicas=1, maxReplicas=2)
        for _ in range(3):
            await world.look("prod")
        assert bound(world) == 5 and world.there("StatefulSet", "prod-proxy")["spec"]["replicas"] == 5
        progress = world.there("Cluster", "prod")["status"]["conditions"][1]
        assert progress["message"] == "prod-proxy-0, which would stay, is not ready"
        world.pods_are_made()
        await world.look("prod")
        assert world.there("StatefulSet", "prod-proxy")["spec"]["replicas"] == 2
        await world.look("prod")
        assert bound(world) == 2

    run(use, cluster(proxies={"autoscaling": {"enabled": True, "minReplicas": 1, "maxReplicas": 8}}))


def test_an_autoscalers_own_number_is_not_touched() -> None:
    async def use(world: World) -> None:
        await world.look("prod")
        scales(world, 5)
        world.there("Pod", "prod-proxy-0")["status"] = {"conditions": []}
        await world.look("prod")
        scales(world, 3)
        await world.look("prod")
        assert world.there("StatefulSet", "prod-proxy")["spec"]["replicas"] == 3 and bound(world) == 8

    run(use, cluster(proxies={"autoscaling": {"enabled": True, "minReplicas": 1, "maxReplicas": 8}}))


def test_an_autoscaler_that_comes_takes_none_that_works_nor_does_one_that_goes() -> None:
    async def use(world: World) -> None:
        await world.look("prod")
        world.pods_are_made()
        world.there("Pod", "prod-proxy-1")["status"] = {"conditions": []}
        autoscaled(world, minReplicas=1, maxReplicas=2)
        await world.look("prod")
        assert bound(world) == 4 and world.there("StatefulSet", "prod-proxy")["spec"]["replicas"] == 4
        world.there("Cluster", "prod")["spec"]["proxies"] = {"replicas": 3}
        await world.look("prod")
        assert world.there("StatefulSet", "prod-proxy")["spec"]["replicas"] == 4
        world.pods_are_made()
        await world.look("prod")
        await world.look("prod")
        assert world.there("StatefulSet", "prod-proxy")["spec"]["replicas"] == 3

    run(use, cluster(proxies={"replicas": 4}))
