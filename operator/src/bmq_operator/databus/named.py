"""Looks up the channel set that a pod names, and what that names: all of it in the pod's namespace, or said to be for
it.
"""

from collections import OrderedDict
from typing import Final

from pydantic import BaseModel, ValidationError

from bmq_operator.allowed import Allowed, matches, why_not_labelled
from bmq_operator.databus.channel_sets import BadChannelSet, ChannelSet, channel_set_of
from bmq_operator.kube import Kube, Manifest
from bmq_operator.references import ALL_NAMESPACES

REMEMBERED: Final = 256


class _Takes(BaseModel):
    namespaces: list[str] = []


class ChannelSets:
    """Those that were read are not parsed again while they are the same: a Job may have a thousand pods."""

    def __init__(self, kube: Kube, allow: Allowed, *, namespaces: tuple[str, ...]) -> None:
        self._kube = kube
        self._allow = allow
        self._namespaces = namespaces
        self._parsed: OrderedDict[tuple[str, str], ChannelSet | BadChannelSet] = OrderedDict()
        """By uid and resourceVersion."""

    async def find(self, namespace: str, name: str) -> tuple[ChannelSet, str]:
        """The set, and what its author is to be warned of, if anything. Raises BadChannelSet, KubeError."""
        if self._namespaces and namespace not in self._namespaces:
            raise BadChannelSet(f"the operator does not look after namespace {namespace}: add it to watchNamespaces")
        config_map = await self._kube.get("ConfigMap", namespace, name)
        why = why_not_labelled(
            config_map,
            self._allow.config_maps,
            kind="ConfigMap",
            name=name,
            namespace=namespace,
            field="bmq.io/databus",
        )
        if why or config_map is None:
            raise BadChannelSet(why or f"bmq.io/databus: there is no ConfigMap {name!r} in namespace {namespace}")
        found = self._read(config_map)
        if found.tokens_secret and not matches(found.tokens_secret, self._allow.secrets):
            secret = await self._kube.get("Secret", namespace, found.tokens_secret)
            field = f"ConfigMap {name}, tokensSecret"
            if why := why_not_labelled(
                secret, (), kind="Secret", name=found.tokens_secret, namespace=namespace, field=field
            ):
                raise BadChannelSet(why)
        return found, await self._doubt(found, namespace)

    def _read(self, config_map: Manifest) -> ChannelSet:
        meta = config_map["metadata"]
        key = (meta.get("uid", ""), meta.get("resourceVersion", ""))
        if key not in self._parsed:
            try:
                self._parsed[key] = channel_set_of(config_map)
            except BadChannelSet as error:
                self._parsed[key] = error
            if len(self._parsed) > REMEMBERED:
                self._parsed.popitem(last=False)
        found = self._parsed[key]
        if isinstance(found, BadChannelSet):
            raise found.with_traceback(None)
        return found

    async def _doubt(self, found: ChannelSet, namespace: str) -> str:
        """What is odd about its Cluster; empty: nothing. Raises BadChannelSet, KubeError."""
        if found.cluster is None:
            return ""
        where = found.cluster.namespace or namespace
        cluster = await self._kube.get("Cluster", where, found.cluster.name)
        title = f"ConfigMap {found.name}, cluster: {where}/{found.cluster.name}"
        if where == namespace:
            return "" if cluster is not None else f"{title}: there is none yet: its sidecar writes once there is"
        if cluster is None or not _takes(cluster, namespace):
            # The same whether or not there is one, of which nobody here need know.
            raise BadChannelSet(
                f"{title}: there is none that takes what is in namespace {namespace}: have it name that in "
                "topicsFrom.namespaces"
            )
        return ""


def _takes(cluster: Manifest, namespace: str) -> bool:
    try:
        takes = _Takes.model_validate(cluster.get("spec", {}).get("topicsFrom") or {})
    except ValidationError:
        return False
    return namespace in takes.namespaces or ALL_NAMESPACES in takes.namespaces
