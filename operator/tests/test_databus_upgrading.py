"""Sidecars that run get another image: one after the other, and none behind one that it broke."""

import asyncio
import copy
from typing import Any

import jsonpatch
from kube_of_a_test import KubeOfATest

from bmq_operator.databus.injection import INJECTED
from bmq_operator.databus.upgrading import Upgrades, next_one, sidecar_of
from bmq_operator.databus_settings import DatabusSettings
from bmq_operator.settings import OperatorSettings

NEW = "bmq:2"


def running(name: str, *, image: str = "bmq:1", shows: str = "", ready: bool = True, **status: Any) -> dict[str, Any]:
    """A pod with a mesh's sidecar before that of Databus."""
    containers = [
        {"name": "mesh", "image": "mesh:1", "restartPolicy": "Always"},
        {"name": "bmq-databus", "image": image, "restartPolicy": "Always"},
    ]
    told = {"name": "bmq-databus", "ready": ready, "image": f"docker.io/library/{shows or image}"}
    return {
        "kind": "Pod",
        "metadata": {"namespace": "shop", "name": name, "labels": {INJECTED: "true"}},
        "spec": {"initContainers": containers, "containers": [{"name": "app", "image": "app:1"}]},
        "status": {"phase": "Running", "initContainerStatuses": [told], **status},
    }


class Kubelets(KubeOfATest):
    """Pods whose images are changed."""

    async def patch(self, manifest: dict[str, Any], operations: list[dict[str, Any]]) -> dict[str, Any]:
        meta = manifest["metadata"]
        there = self.manifests["Pod", meta["namespace"], meta["name"]]
        self.keep(jsonpatch.apply_patch(copy.deepcopy(there), operations))
        return manifest

    def started(self, name: str, *, ready: bool) -> None:
        """What the kubelet tells once it has started what the spec says."""
        there = self.manifests["Pod", "shop", name]
        image = there["spec"]["initContainers"][1]["image"]
        self.keep(running(name, image=image, ready=ready))

    def images(self) -> dict[str, str]:
        return {name: one["spec"]["initContainers"][1]["image"] for (_, _, name), one in self.manifests.items()}


def test_one_pod_after_the_other_and_none_behind_a_broken_one() -> None:
    async def main() -> None:
        kube = Kubelets(running("a"), running("b"), running("c", ready=False))
        settings = OperatorSettings(namespaces=("shop",), image=NEW, databus=DatabusSettings(enabled=True))
        upgrades = Upgrades(kube, settings)  # type: ignore[arg-type]
        before = copy.deepcopy(kube.manifests)
        for _ in range(3):
            await upgrades.look()
        assert kube.images() == {"a": "bmq:1", "b": "bmq:1", "c": NEW}, "first what does not work, and it alone"
        kube.started("c", ready=True)
        for _ in range(3):
            await upgrades.look()
        assert kube.images() == {"a": NEW, "b": "bmq:1", "c": NEW}, "a's sidecar is still the one before"
        kube.started("a", ready=False)
        await upgrades.look()
        assert kube.images()["b"] == "bmq:1"
        kube.started("a", ready=True)
        await upgrades.look()
        assert set(kube.images().values()) == {NEW}
        for key, one in before.items():
            assert kube.manifests[key]["spec"]["containers"] == one["spec"]["containers"]
            assert kube.manifests[key]["spec"]["initContainers"][0] == one["spec"]["initContainers"][0]
        await upgrades.look()

    asyncio.run(main())


def test_pods_that_end_or_have_none_are_left_alone() -> None:
    ending = running("a")
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    bare = running("b")
    bare["spec"]["initContainers"].pop()
    for one in (ending, bare, running("c", phase="Succeeded"), running("d", phase="Pending")):
        assert sidecar_of(one) is None
    assert next_one([], image=NEW) is None
