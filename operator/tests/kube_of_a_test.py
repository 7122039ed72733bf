"""An API server as `reconcile` reads it: manifests by kind, namespace and name. What it is told to keep, it tells
again.
"""

import base64
import copy
from collections.abc import Callable, Mapping
from typing import Any

from bmq_admin.client import AdminClient
from bmq_operator.context import Context
from bmq_operator.kube import KubeProblem
from bmq_operator.settings import OperatorSettings

TRIAL: dict[str, Any] = {"store": {"minio": {"embedded": True}}}
CLUSTER: dict[str, Any] = {
    "apiVersion": "bmq.io/v1alpha1",
    "kind": "Cluster",
    "metadata": {"name": "bmq", "namespace": "shop"},
    "spec": TRIAL,
}


class KubeOfATest:
    def __init__(self, *manifests: dict[str, Any]) -> None:
        self.manifests: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.lists = 0
        for manifest in manifests:
            self.keep(manifest)

    def now_ms(self) -> int | None:
        return None

    def keep(self, manifest: dict[str, Any]) -> None:
        meta = manifest["metadata"]
        self.manifests[manifest["kind"], meta["namespace"], meta["name"]] = manifest

    def drop(self, kind: str, namespace: str, name: str) -> None:
        self.manifests.pop((kind, namespace, name), None)

    async def get(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        return self.manifests.get((kind, namespace, name))

    async def list(
        self,
        kind: str,
        namespace: str = "",
        *,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> list[dict[str, Any]]:
        self.lists += 1
        there = [one for (found, where, _), one in self.manifests.items() if found == kind and namespace in ("", where)]
        return [
            one for one in there if all(_field(one, path) == value for path, value in (fields or {}).items() if value)
        ]

    async def each(self, kind: str, namespace: str = "", *, keep: Callable[[dict[str, Any]], Any], **more: Any) -> Any:
        found = [keep({"kind": kind, **one}) for one in await self.list(kind, namespace, **more)]
        return [one for one in found if one is not None]

    async def apply(self, manifest: dict[str, Any]) -> dict[str, Any]:
        meta = manifest["metadata"]
        there = self.manifests.get((manifest["kind"], meta["namespace"], meta["name"]))
        if meta.get("uid", "") and (there is None or there["metadata"].get("uid", meta["uid"]) != meta["uid"]):
            raise KubeProblem(status=409, reason="Conflict", message="uid mismatch")
        self.keep(
            copy.deepcopy(
                {
                    **(there or {}),
                    **manifest,
                    "metadata": {**(there or {"metadata": self.given(meta)})["metadata"], **meta},
                }
            )
        )
        return manifest

    async def create(self, manifest: dict[str, Any], *, manager: str = "") -> dict[str, Any]:
        meta = manifest["metadata"]
        if "name" not in meta:
            return manifest  # an event
        if (manifest["kind"], meta["namespace"], meta["name"]) in self.manifests:
            raise KubeProblem(status=409, reason="AlreadyExists", message=f"{meta['name']} already exists")
        self.keep(copy.deepcopy({**manifest, "metadata": {**self.given(meta), **meta}}))
        return copy.deepcopy(self.manifests[manifest["kind"], meta["namespace"], meta["name"]])

    def given(self, meta: dict[str, Any]) -> dict[str, Any]:
        """What the API server gives a new object."""
        return {"uid": f"uid-{meta['name']}"}

    async def merge(
        self, kind: str, namespace: str, name: str, body: dict[str, Any], *, part: str = "", uid: str = ""
    ) -> dict[str, Any]:
        there = self.manifests.get((kind, namespace, name))
        if there is None:
            raise KubeProblem(status=404, reason="NotFound", message=name)
        meant = {**body.get("metadata", {}), **({"uid": uid} if uid else {})}
        for key in ("uid", "resourceVersion"):
            if (wanted := meant.get(key)) is not None and there["metadata"].get(key, wanted) != wanted:
                raise KubeProblem(status=409, reason="Conflict", message=f"another {key}")
        there.update(_merged(there, body))
        self.keep(there)
        return there

    async def delete(self, kind: str, namespace: str, name: str, *, uid: str = "") -> None:
        self.drop(kind, namespace, name)


def _field(manifest: dict[str, Any], path: str) -> Any:
    found: Any = manifest
    for part in path.split("."):
        found = found.get(part, {})
    return found


def selected(manifest: dict[str, Any], labels: Mapping[str, str] | None) -> bool:
    """As Kube selects: an empty value stands for any."""
    has = manifest["metadata"].get("labels", {})
    return all(key in has and value in ("", has[key]) for key, value in (labels or {}).items())


def _merged(there: Any, body: Any) -> Any:
    """RFC 7396."""
    if not isinstance(body, dict):
        return copy.deepcopy(body)
    found = dict(there) if isinstance(there, dict) else {}
    for key, value in body.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = _merged(found.get(key), value)
    return found


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
        return clients.setdefault((found, token), AdminClient(found, token=token, timeout_s=30))

    settings = OperatorSettings(admin_url_template=url, namespaces=())  # whatever the environment says
    return Context(
        kube=kube,  # type: ignore[arg-type]
        settings=settings,
        clock=more.pop("clock", TestClock()),
        rng=more.pop("rng", None),
        admin=admin,
        **more,
    )
