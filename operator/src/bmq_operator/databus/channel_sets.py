"""A channel set: a ConfigMap that says which channels a sidecar has, and whose cluster they are written to. Pure.

Its keys: `channels.yaml`, documents of kind Channel as `bmq databus serve --channels` takes them; one of
`bootstrapServers` (HOST:PORT, several with commas) and `cluster` (NAME, or NAMESPACE/NAME); `tokensSecret`, if who
writes is to present a token. Others are nobody's yet, and refused, so that one may mean something later.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml  # type: ignore[import-untyped]
from pydantic import ValidationError

from bmq.errors import InvalidTopicName
from bmq.naming.names import check_topic_name
from bmq_operator.kube import Manifest
from bmq_resources.channel import Channel

CHANNELS: Final = "channels.yaml"
BOOTSTRAP: Final = "bootstrapServers"
CLUSTER: Final = "cluster"
TOKENS: Final = "tokensSecret"
CHANNELS_BYTES_MAX: Final = 128 << 10
"""Some 500 channels; read for each pod, in a process that does other work."""
EVENTS_MAX: Final = 40_000
DEPTH_MAX: Final = 32
ASIDE_BYTES: Final = 2 * (128 << 20)
"""What a channel keeps of what was refused, and of damaged segments: the defaults of `bmq databus serve`."""
SLACK_BYTES: Final = 64 << 20
"""What is on disk of a spool beside its messages: notes of what was sent, the segment that is begun."""
_KEYS: Final = frozenset((CHANNELS, BOOTSTRAP, CLUSTER, TOKENS))
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
    cluster: ClusterName | None
    """None: the ConfigMap itself has the addresses."""
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
    if not data.get(CHANNELS):
        raise BadChannelSet(f"{where} has no {CHANNELS}: write documents of kind: Channel there, as in docs/databus.md")
    if (BOOTSTRAP in data) == (CLUSTER in data):
        raise BadChannelSet(f"{where} has to say where the cluster is: write either {BOOTSTRAP} or {CLUSTER}")
    servers = data.get(BOOTSTRAP)
    if servers is not None and _SERVERS.fullmatch(servers) is None:
        text = f"{where}, {BOOTSTRAP}: {servers[:60]!r}: write HOST:PORT, several with commas"
        raise BadChannelSet(f"{text}, without blanks and new lines")
    tokens = data.get(TOKENS, "")
    if tokens and _NAME.fullmatch(tokens) is None:
        raise BadChannelSet(f"{where}, {TOKENS}: {tokens[:60]!r} is no name of a Secret")
    return ChannelSet(
        name=name,
        cluster=_cluster(data[CLUSTER], where) if CLUSTER in data else None,
        tokens_secret=tokens,
        spool_bytes=_spool_bytes(_channels(data[CHANNELS], f"{where}, {CHANNELS}")),
    )


def _cluster(text: str, where: str) -> ClusterName:
    namespace, slash, name = text.rpartition("/")
    if _NAME.fullmatch(name) is None or (slash and _NAME.fullmatch(namespace) is None):
        raise BadChannelSet(f"{where}, {CLUSTER}: {text[:60]!r}: write the Cluster's name, or NAMESPACE/NAME")
    return ClusterName(name=name, namespace=namespace)


def _spool_bytes(channels: list[Channel]) -> int:
    accepting = [one.spec.spool for one in channels if one.spec.acknowledgement == "accepted"]
    return sum(one.max_bytes + ASIDE_BYTES + SLACK_BYTES for one in accepting)


def _channels(text: str, where: str) -> list[Channel]:
    """By the rules of `bmq_databus.channels.files`, which the sidecar reads them by."""
    if len(text.encode()) > CHANNELS_BYTES_MAX:
        raise BadChannelSet(f"{where} has more than {CHANNELS_BYTES_MAX >> 10} KiB: split it into several channel sets")
    try:
        _check(text, where)
        documents = [one for one in yaml.load_all(text, yaml.CSafeLoader) if one is not None]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f", line {mark.line + 1}"
        raise BadChannelSet(f"{where}{line} is no YAML: {getattr(error, 'problem', None) or 'see there'}") from None
    found: dict[str, Channel] = {}
    for number, document in enumerate(documents, 1):
        channel = _channel(document, f"{where}, document {number}")
        if channel.channel_name in found:
            raise BadChannelSet(f"{where}, document {number}: channel {channel.channel_name} stands there twice")
        found[channel.channel_name] = channel
    if not found:
        raise BadChannelSet(f"{where} has no Channel: write one, as in docs/databus.md")
    return list(found.values())


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


def _channel(document: Any, where: str) -> Channel:
    if not isinstance(document, dict) or document.get("kind") != "Channel":
        raise BadChannelSet(f"{where} is no Channel: a channel set has documents of kind: Channel alone")
    try:
        channel = Channel.model_validate(document)
        check_topic_name(channel.topic_name)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise BadChannelSet(f"{where}, {field}: {str(first['input'])[:60]!r}: {first['msg']}") from None
    except InvalidTopicName as error:
        raise BadChannelSet(f"{where}, spec.topic: {error}") from None
    return channel
