"""An API server as `reconcile` reads it: manifests by kind, namespace and name. What it is told to keep, it tells again."""

import base64
from collections.abc import Mapping
from typing import Any

from bmq_operator.admin import AdminClient
from bmq_operator.context import Context
from bmq_operator.settings import OperatorSettings

TRIAL: dict[str, Any] = {"store": {"minio": {"embedded": True}}}
CLUSTER: dict[str, Any] = {"apiVersion": "bmq.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "bmq", "namespace": "shop"}, "spec": TRIAL}


class KubeOfATest:
    def __init__(self, *manifests: dict[str, Any]) -> None:
        self.manifests: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.lists = 0
        for manifest in manifests:
            self.keep(manifest)

    def keep(self, manifest: dict[str, Any]) -> None:
        meta = manifest["metadata"]
        self.manifests[manifest["kind"], meta["namespace"], meta["name"]] = manifest

    def drop(self, kind: str, namespace: str, name: str) -> None:
        self.manifests.pop((kind, namespace, name), None)

    async def get(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        return self.manifests.get((kind, namespace, name))

    async def list(self, kind: str, namespace: str = "", *, labels: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        self.lists += 1
        return [one for (found, where, _), one in self.manifests.items() if found == kind and namespace in ("", where)]

    async def apply(self, manifest: dict[str, Any]) -> dict[str, Any]:
        meta = manifest["metadata"]
        there = self.manifests.get((manifest["kind"], meta["namespace"], meta["name"]), {"metadata": {"uid": f"uid-{meta['name']}"}})
        self.keep({**there, **manifest, "metadata": {**there["metadata"], **meta}})
        return manifest

    async def delete(self, kind: str, namespace: str, name: str, *, uid: str = "") -> None:
        self.drop(kind, namespace, name)


class TestClock:
    __test__ = False

    def __init__(self) -> None:
        self.ms = 1_000_000_000_000

    def now_ms(self) -> int:
        return self.ms


def auth_secret(token: str) -> dict[str, Any]:
    data = {"admin-token": base64.b64encode(token.encode()).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bmq-auth", "namespace": "shop"}, "data": data}


def context_of(kube: KubeOfATest, url: str, clients: dict[tuple[str, str], AdminClient], **more: Any) -> Context:
    def admin(found: str, token: str) -> AdminClient:
        return clients.setdefault((found, token), AdminClient(found, token=token, timeout_s=5))

    settings = OperatorSettings(admin_url_template=url, namespaces=())  # whatever the environment says
    return Context(kube=kube, settings=settings, clock=more.pop("clock", TestClock()), rng=None, admin=admin, **more)  # type: ignore[arg-type]
