"""Keeps what sidecars present to Clusters whose channels they follow: makes a Secret where the first pod asks for one,
and, on the operator that leads, gives it another token once the Cluster's has changed, and deletes it once the Cluster
is gone or takes nothing of that namespace any more.
"""

import asyncio
import secrets
from collections.abc import Iterable
from typing import Final

import structlog

from bmq.naming.bearer import watching_token
from bmq_admin.errors import AdminUnreachable
from bmq_operator.clusters.access import admin_token_of
from bmq_operator.clusters.names import Names
from bmq_operator.databus.credentials import CREDENTIAL, cluster_of, credential, credential_of, data_of
from bmq_operator.hearing import ALL, taken_by
from bmq_operator.kube import Kube, KubeError, KubeProblem, Manifest

EVERY_S: Final = 15.0

_log = structlog.get_logger()


class NotOurs(Exception):
    """Somebody else has made a Secret of the name: what, and the remedy."""


class Credentials:
    """Those of all namespaces that the operator looks after."""

    def __init__(self, kube: Kube, namespaces: Iterable[str]) -> None:
        self._kube = kube
        self._namespaces = tuple(namespaces)

    async def ensure(self, namespace: str, cluster: tuple[str, str]) -> None:
        """There is one in this namespace for the sidecars of a Cluster. Raises KubeError, NotOurs."""
        name = credential_of(*cluster)
        there = await self._kube.get("Secret", namespace, name)
        if there is None:
            found = await self._kube.get("Cluster", *cluster)
            token = "" if found is None else await self._token(found)
            # Without one of the Cluster's yet, one that opens nothing: pods start, and their sidecars ask again.
            presented = watching_token(token) if token else secrets.token_hex(24)
            try:
                await self._kube.create(credential(namespace, cluster, token=presented))
                return
            except KubeProblem as problem:
                if problem.status != 409:
                    raise
            there = await self._kube.get("Secret", namespace, name)
        if there is not None and cluster_of(there) != cluster:
            raise NotOurs(
                f"Secret {name} in namespace {namespace} is not the operator's: delete it, and make the pod anew"
            )

    async def keep(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.look()
            except KubeError as error:
                _log.warning("credentials of sidecars could not be looked after", why=str(error))
            await asyncio.sleep(EVERY_S)

    async def look(self) -> None:
        """Once. Raises KubeError."""
        found: list[Manifest] = []
        for namespace in self._namespaces:
            found += await self._kube.each("Secret", namespace, keep=_kept, labels={CREDENTIAL: "true"})
        for secret in found:
            try:
                await self._renew(secret)
            except KubeProblem as problem:
                if problem.status not in (404, 409):  # else it is gone, or another one
                    raise

    async def _renew(self, secret: Manifest) -> None:
        cluster, meta = cluster_of(secret), secret["metadata"]
        if cluster is None:
            return
        namespace, name = meta["namespace"], meta["name"]
        there = await self._kube.get("Cluster", *cluster)
        is_elsewhere = namespace != cluster[0]
        if is_elsewhere and (there is None or not takes(there, namespace)):
            await self._kube.delete("Secret", namespace, name, uid=meta["uid"])
            _log.info("sidecars may follow a Cluster no more", namespace=namespace, cluster="/".join(cluster))
            return
        if there is None:  # its pods may have come first
            return
        change: Manifest = {}
        if not is_elsewhere and not meta.get("ownerReferences"):
            change["metadata"] = {"ownerReferences": [_owner(there)]}
        if (token := await self._token(there)) and (data := data_of(watching_token(token))) != secret.get("data"):
            change["data"] = data
        if change:
            await self._kube.merge("Secret", namespace, name, change, uid=meta["uid"])
            _log.info("sidecars have another token of a Cluster", namespace=namespace, cluster="/".join(cluster))

    async def _token(self, cluster: Manifest) -> str:
        """Empty: it has none yet."""
        meta = cluster["metadata"]
        try:
            return await admin_token_of(self._kube, Names(meta["name"], meta["namespace"]), uid=meta["uid"])
        except AdminUnreachable:
            return ""


def takes(cluster: Manifest, namespace: str) -> bool:
    """Whether a Cluster takes what is in another namespace."""
    return bool({namespace, ALL} & taken_by(cluster.get("spec") or {}))


def _owner(cluster: Manifest) -> Manifest:
    meta = cluster["metadata"]
    return {
        "apiVersion": cluster["apiVersion"],
        "kind": "Cluster",
        "name": meta["name"],
        "uid": meta["uid"],
        "blockOwnerDeletion": False,
    }


def _kept(secret: Manifest) -> Manifest:
    meta = secret["metadata"]
    names = ("name", "namespace", "uid", "labels", "annotations", "ownerReferences")
    return {"metadata": {name: meta[name] for name in names if name in meta}, "data": secret.get("data") or {}}
