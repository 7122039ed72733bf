"""Whether the number of proxies follows their CPU, as was asked for: Kubernetes' own autoscaler says it, and nobody
looks there.
"""

from datetime import UTC, datetime
from typing import Any

import pytest
from clusters_world import World, cluster, run

AUTOSCALED = {"proxies": {"autoscaling": {"enabled": True}}}
WHY = (
    "the HPA was unable to compute the replica count: failed to get cpu utilization: missing request for cpu in "
    "container bmq of Pod prod-proxy-0"
)


def says(
    world: World, status: str, *, for_s: int, reason: str = "FailedGetResourceMetric", type_: str = "ScalingActive"
) -> None:
    """As Kubernetes' autoscaler does."""
    since = datetime.fromtimestamp(world.context.clock.now_ms() / 1000 - for_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    there = world.there("HorizontalPodAutoscaler", "prod-proxy")
    there["status"] = {
        "conditions": [{"type": type_, "status": status, "reason": reason, "message": WHY, "lastTransitionTime": since}]
    }


def told(world: World) -> list[dict[str, Any]]:
    return [one for one in world.there("Cluster", "prod")["status"]["conditions"] if one["type"] == "ProxiesScaled"]


def test_that_proxies_are_not_scaled_is_told_with_why_and_what_helps() -> None:
    async def use(world: World) -> None:
        await world.look("prod")
        says(world, "False", for_s=300)
        await world.look("prod")
        (found,) = told(world)
        assert (found["status"], found["reason"]) == ("False", "FailedGetResourceMetric")
        assert WHY in found["message"]
        assert "proxies.resources.requests" in found["message"]
        assert "metrics" in found["message"]
        says(world, "True", for_s=1)
        await world.look("prod")
        assert told(world) == []

    run(use, cluster(**AUTOSCALED))


@pytest.mark.parametrize(
    "said",
    [
        {"status": "False", "for_s": 30},
        {"status": "True", "for_s": 300},
        {"status": "False", "for_s": 300, "type_": "ScalingLimited"},
    ],
)
def test_pods_that_were_just_made_have_no_metrics_yet_and_bounds_are_meant(said: dict[str, Any]) -> None:
    async def use(world: World) -> None:
        await world.look("prod")
        says(world, **said)
        await world.look("prod")
        assert told(world) == []

    run(use, cluster(**AUTOSCALED))


def test_a_cluster_without_an_autoscaler_says_nothing_of_it() -> None:
    async def use(world: World) -> None:
        await world.look("prod")
        says(world, "False", for_s=300)
        world.there("Cluster", "prod")["spec"]["proxies"] = {}
        await world.look("prod")
        assert told(world) == []

    run(use, cluster(**AUTOSCALED))
