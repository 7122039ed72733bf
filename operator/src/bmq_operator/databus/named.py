"""Looks up the channel set that a pod names, and what that names: all of it in the pod's namespace, or said to be for
it.
"""

from collections import OrderedDict
from typing import Final

from bmq_operator.allowed import Allowed, matches, why_not_labelled
from bmq_operator.databus.channel_sets import (
    BadChannelSet,
    ChannelSet,
    ClusterName,
    channel_set_following,
    channel_set_of,
)
from bmq_operator.databus.crediting import Credentials, NotOurs, takes
from bmq_operator.kube import Kube, Manifest

REMEMBERED: Final = 256


class ChannelSets:
    """Those that were read are not parsed again while they are the same: a Job may have a thousand pods."""

    def __init__(self, kube: Kube, allow: Allowed, *, namespaces: tuple[str, ...]) -> None:
        self._kube = kube
        self._allow = allow
        self._namespaces = namespaces
        self._credentials = Credentials(kube, ())
        self._parsed: OrderedDict[tuple[str, str], ChannelSet | BadChannelSet] = OrderedDict()
        """By uid and resourceVersion."""

    async def find(self, namespace: str, name: str, *, dry_run: bool) -> tuple[ChannelSet, str]:
        """The set, and what its author is to be warned of, if anything; what its sidecar presents to its control plane
        is there then, unless all is only tried. Raises BadChannelSet, KubeError.
        """
        self._check_namespace(namespace)
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
        return found, await self._doubts(found, namespace, title=f"ConfigMap {found.name}", dry_run=dry_run)

    async def follow(self, namespace: str, text: str, *, field: str, dry_run: bool) -> tuple[ChannelSet, str]:
        """The same for a pod that names the Cluster itself, in the annotation `field`."""
        self._check_namespace(namespace)
        found = channel_set_following(text, field)
        return found, await self._doubts(found, namespace, title=field, dry_run=dry_run)

    def _check_namespace(self, namespace: str) -> None:
        if self._namespaces and namespace not in self._namespaces:
            raise BadChannelSet(f"the operator does not look after namespace {namespace}: add it to watchNamespaces")

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

    async def _doubts(self, found: ChannelSet, namespace: str, *, title: str, dry_run: bool) -> str:
        """What is odd about its Clusters; empty: nothing. Raises BadChannelSet, KubeError."""
        doubts = []
        for cluster in dict.fromkeys((found.cluster, found.control_plane)):
            if cluster is not None:
                doubts.append(await self._doubt(cluster, namespace, title=title))
        if found.control_plane is not None and not dry_run:
            plane = found.control_plane
            try:
                await self._credentials.ensure(namespace, (plane.namespace or namespace, plane.name))
            except NotOurs as why:
                raise BadChannelSet(f"{title}: {why}") from None
        return next((one for one in doubts if one), "")

    async def _doubt(self, named: ClusterName, namespace: str, *, title: str) -> str:
        where = named.namespace or namespace
        cluster = await self._kube.get("Cluster", where, named.name)
        title = f"{title}, cluster: {where}/{named.name}"
        if where == namespace:
            return "" if cluster is not None else f"{title}: there is none yet: its sidecar writes once there is"
        if cluster is None or not takes(cluster, namespace):
            # The same whether or not there is one, of which nobody here need know.
            raise BadChannelSet(
                f"{title}: there is none that takes what is in namespace {namespace}: have it name that in "
                "topicsFrom.namespaces"
            )
        return ""
