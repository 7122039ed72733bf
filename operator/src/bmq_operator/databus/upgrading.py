"""Gives sidecars of pods that run the image that new ones get. Kubernetes lets the image of a running container be
changed, and nothing else of it: the kubelet starts the sidecar anew, and the application's container goes on.

One pod after the other, and the next one once the sidecar before works: an image that breaks sidecars, or that a
namespace cannot pull, breaks one.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import structlog

from bmq_operator.databus.injection import INJECTED
from bmq_operator.databus.sidecar import CONTAINER
from bmq_operator.kube import Kube, KubeError, KubeProblem, Manifest
from bmq_operator.settings import OperatorSettings

EVERY_S: Final = 10.0

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sidecar:
    """One that runs. `at`: its place among the pod's init containers."""

    namespace: str
    pod: str
    at: int
    image: str
    is_ready: bool


def sidecar_of(pod: Manifest) -> Sidecar | None:
    """The sidecar of a pod that runs, and goes on to; None: there is none. Pure."""
    meta, status = pod["metadata"], pod.get("status") or {}
    if status.get("phase") != "Running" or meta.get("deletionTimestamp"):
        return None
    for at, one in enumerate(pod["spec"].get("initContainers") or ()):
        if one["name"] == CONTAINER and one.get("restartPolicy") == "Always":
            told: Manifest = next(
                (one for one in status.get("initContainerStatuses") or () if one["name"] == CONTAINER), {}
            )
            return Sidecar(
                namespace=meta["namespace"],
                pod=meta["name"],
                at=at,
                image=one["image"],
                is_ready=_is_ready(told, image=one["image"]),
            )
    return None


def next_one(found: Iterable[Sidecar], *, image: str) -> Sidecar | None:
    """Whose turn it is; None: nobody's, as all have the image, or as one that has it does not work. Pure."""
    sidecars = sorted(found, key=lambda one: (one.is_ready, one.namespace, one.pod))
    if any(one.image == image and not one.is_ready for one in sidecars):
        return None
    return next((one for one in sidecars if one.image != image), None)


class Upgrades:
    """What the operator that leads does."""

    def __init__(self, kube: Kube, settings: OperatorSettings) -> None:
        self._kube = kube
        self._namespaces = settings.watched_namespaces
        self._image = settings.databus_image

    async def keep(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.look()
            except KubeError as error:
                _log.warning("sidecars of Databus could not be looked after", why=str(error))
            await asyncio.sleep(EVERY_S)

    async def look(self) -> None:
        """Once: one sidecar at most. Raises KubeError."""
        found: list[Sidecar] = []
        for namespace in self._namespaces:
            found += await self._kube.each("Pod", namespace, keep=sidecar_of, labels={INJECTED: "true"})
        chosen = next_one(found, image=self._image)
        if chosen is None:
            return
        path = f"/spec/initContainers/{chosen.at}"
        pod: dict[str, Any] = {"kind": "Pod", "metadata": {"namespace": chosen.namespace, "name": chosen.pod}}
        operations = [
            {"op": "test", "path": f"{path}/name", "value": CONTAINER},
            {"op": "replace", "path": f"{path}/image", "value": self._image},
        ]
        try:
            await self._kube.patch(pod, operations)
        except KubeProblem as problem:
            if problem.status not in (404, 422):  # else it is gone, or another one
                raise
        _log.info("a sidecar of Databus gets another image", namespace=chosen.namespace, pod=chosen.pod)


def _is_ready(told: Manifest, *, image: str) -> bool:
    """Kubernetes tells of the container that was there before until it has looked at the pod again."""
    return bool(told.get("ready")) and _is(told.get("image", ""), image)


def _is(told: str, image: str) -> bool:
    """Whether what runs is this image: runtimes put the registry before a short name, and tell a digest's alone."""
    return told == image or told.endswith(f"/{image}") or "@" in image or "@" in told or told.startswith("sha256:")
