"""A channel set: a ConfigMap that says which channels a sidecar has, and whose cluster they are written to. Pure.

Its keys: `channels.yaml`, documents of kind Channel as `bmq databus serve --channels` takes them, or `controlPlane`
(NAME, or NAMESPACE/NAME), the Cluster whose channels are followed; one of `bootstrapServers` (HOST:PORT, several with
commas) and `cluster` (as the other one, whose Cluster it is unless said); `tokensSecret`, if who writes is to present a
token. Others are nobody's yet, and refused, so that one may mean something later.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml  # type: ignore[import-untyped]

from bmq_operator.kube import Manifest
from bmq_resources.channel import Channel
from bmq_resources.channel_sets import BadChannels, channels_in, disk_bytes

CHANNELS: Final = "channels.yaml"
BOOTSTRAP: Final = "bootstrapServers"
CLUSTER: Final = "cluster"
CONTROL_PLANE: Final = "controlPlane"
TOKENS: Final = "tokensSecret"
CHANNELS_BYTES_MAX: Final = 128 << 10
"""Some 500 channels; read for each pod, in a process that does other work."""
EVENTS_MAX: Final = 40_000
DEPTH_MAX: Final = 32
_KEYS: Final = frozenset((CHANNELS, CONTROL_PLANE, BOOTSTRAP, CLUSTER, TOKENS))
_SERVERS: Final = re.compile(r"[A-Za-z0-9.\[\]:_-]{1,255}:[0-9]{1,5}(,[A-Za-z0-9.\[\]:_-]{1,255}:[0-9]{1,5}){0,31}")
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


class BadChannelSet(Exception):
    """No sidecar can be made of it: what, why, and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterName:
    """Which Cluster a set is written to; an empty namespace: the pod's."""

    name: str
    namespace: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelSet:
    """What a sidecar needs to know of one."""

    name: str
    """Empty: there is none, but a pod that names a Cluster."""
    cluster: ClusterName | None
    """None: the ConfigMap itself has the addresses."""
    control_plane: ClusterName | None = None
    """Whose channels are followed; None: the ConfigMap itself has the channels."""
    tokens_secret: str = ""
    """Empty: whoever reaches the sidecar may write."""
    spool_bytes: int = 0
    """What its channels may have on disk together; 0: none accepts."""


def channel_set_of(config_map: Manifest) -> ChannelSet:
    """What this ConfigMap says. Raises BadChannelSet."""
    name = config_map["metadata"]["name"]
    data: Mapping[str, Any] = config_map.get("data") or {}
    where = f"ConfigMap {name}"
    if unknown := sorted(data.keys() - _KEYS):
        raise BadChannelSet(
            f"{where}: {unknown[0][:60]!r} is no key of a channel set: it has {', '.join(sorted(_KEYS))}"
        )
    follows = CONTROL_PLANE in data
    if follows and CHANNELS in data:
        raise BadChannelSet(
            f"{where} has {CHANNELS} and {CONTROL_PLANE}: its channels are in one of them, leave one out"
        )
    if not follows and not data.get(CHANNELS):
        raise BadChannelSet(
            f"{where} has no {CHANNELS}: write documents of kind: Channel there, as in docs/databus.md, or "
            f"{CONTROL_PLANE}, the Cluster that has the channels"
        )
    if (BOOTSTRAP in data and CLUSTER in data) or not (follows or BOOTSTRAP in data or CLUSTER in data):
        raise BadChannelSet(f"{where} has to say where the cluster is: write either {BOOTSTRAP} or {CLUSTER}")
    servers = data.get(BOOTSTRAP)
    if servers is not None and _SERVERS.fullmatch(servers) is None:
        text = f"{where}, {BOOTSTRAP}: {servers[:60]!r}: write HOST:PORT, several with commas"
        raise BadChannelSet(f"{text}, without blanks and new lines")
    tokens = data.get(TOKENS, "")
    if tokens and _NAME.fullmatch(tokens) is None:
        raise BadChannelSet(f"{where}, {TOKENS}: {tokens[:60]!r} is no name of a Secret")
    control_plane = cluster_named(data[CONTROL_PLANE], f"{where}, {CONTROL_PLANE}") if follows else None
    cluster = cluster_named(data[CLUSTER], f"{where}, {CLUSTER}") if CLUSTER in data else control_plane
    return ChannelSet(
        name=name,
        cluster=None if BOOTSTRAP in data else cluster,
        control_plane=control_plane,
        tokens_secret=tokens,
        spool_bytes=0 if follows else _spool_bytes(_channels(data[CHANNELS], f"{where}, {CHANNELS}")),
    )


def channel_set_following(text: str, where: str) -> ChannelSet:
    """That of a pod which names the Cluster itself. Raises BadChannelSet."""
    cluster = cluster_named(text, where)
    return ChannelSet(name="", cluster=cluster, control_plane=cluster)


def cluster_named(text: str, where: str) -> ClusterName:
    """Raises BadChannelSet."""
    namespace, slash, name = text.rpartition("/")
    if _NAME.fullmatch(name) is None or (slash and _NAME.fullmatch(namespace) is None):
        raise BadChannelSet(f"{where}: {text[:60]!r}: write the Cluster's name, or NAMESPACE/NAME")
    return ClusterName(name=name, namespace=namespace)


def _spool_bytes(channels: Iterable[Channel]) -> int:
    return sum(
        disk_bytes(one.spec.spool.max_bytes) * one.spec.clusters
        for one in channels
        if one.spec.acknowledgement == "accepted"
    )


def _channels(text: str, where: str) -> Iterable[Channel]:
    if len(text.encode()) > CHANNELS_BYTES_MAX:
        raise BadChannelSet(f"{where} has more than {CHANNELS_BYTES_MAX >> 10} KiB: split it into several channel sets")
    try:
        _check(text, where)
        documents = list(yaml.load_all(text, yaml.CSafeLoader))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f", line {mark.line + 1}"
        raise BadChannelSet(f"{where}{line} is no YAML: {getattr(error, 'problem', None) or 'see there'}") from None
    try:
        return channels_in(documents).values()
    except BadChannels as error:
        raise BadChannelSet(f"{where}: {error}") from None


def _check(text: str, where: str) -> None:
    """Whoever may write a ConfigMap has some bytes to make much of: depth, and aliases of aliases."""
    depth = 0
    for number, event in enumerate(yaml.parse(text, yaml.CSafeLoader)):
        if isinstance(event, yaml.AliasEvent):
            raise BadChannelSet(f"{where} has an alias (*{event.anchor[:40]}): write out what it stands for")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEPTH_MAX or number > EVENTS_MAX:
            raise BadChannelSet(
                f"{where} is nested too deep, or has too many parts: split it into several channel sets"
            )
