"""Channels of Databus in the metadata: what each is to be, and in which order they were changed. Pure.

In records and snapshots a channel is a configuration of the kind `channel`, which every version of bmq reads and keeps,
also one that knows nothing of channels: so they may be declared while nodes of several versions run
(docs/decisions/0053). Each change has a number, the revision; the last one stands under the kind `channels`, where it
outlives the channel.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from bmq.metadata.derived import config_size
from bmq.metadata.image import Image
from bmq.metadata.records import ConfigsChanged

_CHANNEL: Final = "channel"
_ALL: Final = ("channels", "")
_SPEC: Final = "spec"
_REVISION: Final = "revision"
_CREATED: Final = "created_ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredChannel:
    """A channel. `spec` is JSON: what it is to be, without what is as by default."""

    name: str
    spec: str
    revision: int
    """The change that made it what it is; no two changes of a cluster have the same."""
    created_ms: int

    @property
    def size_bytes(self) -> int:
        """What it adds to `Image.config_bytes`."""
        return config_size(_values(self))


def channel(image: Image, name: str) -> StoredChannel | None:
    """The channel of this name."""
    values = image.configs.get((_CHANNEL, name))
    if values is None:
        return None
    return StoredChannel(
        name=name,
        spec=values[_SPEC],
        revision=int(values[_REVISION]),
        created_ms=int(values[_CREATED]),
    )


def channel_names(image: Image) -> Iterator[str]:
    """The names of all channels, in no order. O(configurations of the cluster)."""
    return (name for kind, name in image.configs if kind == _CHANNEL)


def revision(image: Image) -> int:
    """The number of the last change of any channel, deletions included; 0: there never was one."""
    return int(image.configs.get(_ALL, {}).get(_REVISION, "0"))


def changed_names(old: Image, new: Image) -> frozenset[str]:
    """The channels that are not the same in both, or are in one alone. O(configurations of the cluster)."""
    if old.configs is new.configs:
        return frozenset()
    return frozenset(
        name
        for kind, name in {**old.configs, **new.configs}
        if kind == _CHANNEL and old.configs.get((kind, name)) != new.configs.get((kind, name))
    )


def declared(found: StoredChannel) -> tuple[ConfigsChanged, ConfigsChanged]:
    """The records that make it what it is; its revision is the last one from then on."""
    values: dict[str, str | None] = {**_values(found)}
    return ConfigsChanged(kind=_CHANNEL, name=found.name, changes=values), _last(found.revision)


def deleted(name: str, *, revision: int) -> tuple[ConfigsChanged, ConfigsChanged]:
    """The records by which it is gone."""
    gone: dict[str, str | None] = dict.fromkeys((_SPEC, _REVISION, _CREATED))
    return ConfigsChanged(kind=_CHANNEL, name=name, changes=gone), _last(revision)


def _last(number: int) -> ConfigsChanged:
    kind, name = _ALL
    return ConfigsChanged(kind=kind, name=name, changes={_REVISION: str(number)})


def _values(found: StoredChannel) -> dict[str, str]:
    return {_SPEC: found.spec, _REVISION: str(found.revision), _CREATED: str(found.created_ms)}
