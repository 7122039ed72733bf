"""What a control plane says of channels, and which channels that makes. Pure.

What came is kept as it came, but for what is beyond bounds.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final

import msgspec
from pydantic import ValidationError

from bmq.errors import InvalidTopicName
from bmq_databus.channels.channel import Channel, Manner, channel_of
from bmq_databus.control_plane.answers import ANSWER_BYTES_MAX, CHANNELS_MAX, Changes, Declared, why_beyond
from bmq_databus.errors import BadConfiguration
from bmq_resources.channel import Channel as ChannelResource
from bmq_resources.channel_sets import MANNERS_MAX, SCHEMAS_BYTES_MAX, disk_bytes, why_lost, why_too_many
from bmq_resources.value_schemas import BadSchema

_SHOWN: Final = 60
_ROUNDS: Final = 8
_TOO_DEEP: Final = "spec is nested too deeply: have fewer lists and objects within each other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """All that is known. `version` is the control plane's word for it."""

    version: str
    specs: Mapping[str, bytes]
    """What channels say, as JSON, by name."""
    created_ms: Mapping[str, int] = field(default_factory=dict)
    """When channels were made, in ms since 1970, where that is known."""
    beyond: Mapping[str, str] = field(default_factory=dict)
    """Why of further channels nothing is kept: they say more than is read."""

    def __iter__(self) -> Iterator[str]:
        """All channels' names."""
        return chain(self.specs, self.beyond)


def changed(before: Configuration | None, changes: Changes) -> Configuration:
    """What is known after an answer. Raises BadConfiguration."""
    if before is None and not changes.complete:
        raise BadConfiguration("the control plane's answer has changes alone, of what was never told")
    known = None if changes.complete else before
    gone = {*map(str, changes.deleted)}
    return configured(changes.version, changes.channels, to=known, without=gone)


def configured(
    version: str,
    channels: Iterable[Declared],
    *,
    to: Configuration | None = None,
    without: Set[str] = frozenset(),
) -> Configuration:
    """These channels, added `to` those that are known, but for such as are gone. Raises BadConfiguration where they are
    more than a sidecar keeps.
    """
    specs: dict[str, bytes] = {}
    created_ms: dict[str, int] = {}
    beyond: dict[str, str] = {}
    if to is not None:
        specs.update((name, spec) for name, spec in to.specs.items() if name not in without)
        created_ms.update((name, at_ms) for name, at_ms in to.created_ms.items() if name not in without)
        beyond.update((name, why) for name, why in to.beyond.items() if name not in without)
    for one in channels:
        name, spec = str(one.name), bytes(one.spec)
        if why := why_beyond(spec):
            specs.pop(name, None)
            beyond[name] = why
        else:
            beyond.pop(name, None)
            specs[name] = spec
        if one.created_ms:
            created_ms[name] = one.created_ms
    if (count := len(specs) + len(beyond)) > CHANNELS_MAX:
        raise BadConfiguration(f"there are {count} channels, and a sidecar follows {CHANNELS_MAX}: delete some")
    if (size_bytes := sum(len(name) + len(spec) for name, spec in specs.items())) > ANSWER_BYTES_MAX:
        raise BadConfiguration(
            f"all channels have {size_bytes} bytes, and a sidecar keeps {ANSWER_BYTES_MAX}: have them say less"
        )
    return Configuration(version=version, specs=specs, created_ms=created_ms, beyond=beyond)


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What the channels of a sidecar may take up together. `disk_bytes` None: as the disk has."""

    disk_bytes: int | None = None
    aside_bytes: int = 256 << 20
    """What each keeps of refused messages and of damaged segments."""
    schema_bytes: int = SCHEMAS_BYTES_MAX
    """What their schemas take of its memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What a spec comes to, whatever other channels there are."""

    spec: bytes
    channel: Channel | None
    """None: it cannot be made."""
    why_not: str = ""
    topics: frozenset[str] = frozenset()
    """Those that it names, of whatever cluster, also where it cannot be made."""


def made_of(name: str, spec: bytes) -> Made:
    """What a channel comes to by what it says. Takes up to some 0.2 s where it has a schema."""
    topics: frozenset[str] = frozenset()
    try:
        said = _said(spec)
        topics = _topics_in(said)
        return Made(spec=spec, channel=_channel(name, said), topics=topics)
    except BadConfiguration as error:
        why = str(error)
    except RecursionError:
        why = _TOO_DEEP
    return Made(spec=spec, channel=None, why_not=why, topics=topics)


def made_in(configuration: Configuration) -> dict[str, Made]:
    """What each of the channels comes to."""
    found = {name: made_of(name, spec) for name, spec in configuration.specs.items()}
    return found | not_read(configuration)


def not_read(configuration: Configuration) -> dict[str, Made]:
    """Those that say more than is read."""
    return {name: Made(spec=b"", channel=None, why_not=why) for name, why in configuration.beyond.items()}


def names_in(made: Mapping[str, Made]) -> frozenset[str]:
    """Those of all channels, and of their topics of whatever cluster, whether they can be made or not."""
    return frozenset(made).union(*(one.topics for one in made.values()))


def channels_in(
    configuration: Configuration,
    before: Mapping[str, Channel],
    room: Room = Room(),
    made: Mapping[str, Made] | None = None,
) -> tuple[dict[str, Channel], dict[str, str]]:
    """The channels, by name, and why some of them cannot be made: those stay as they were `before`, if they were. One
    that is as before is the same. Where dead letters lead nowhere, what would be one is refused. Where there is no room
    for all, those that are there go first, then the oldest. `made`: what each spec comes to; None: not known yet.
    """
    found: dict[str, Channel] = {}
    troubles: dict[str, str] = {}
    if made is None:
        made = made_in(configuration)
    for name in configuration:
        known, one = before.get(name), made[name]
        if one.channel is None:
            troubles[name] = one.why_not
            if known is not None:
                found[name] = known
        else:
            found[name] = known if known is not None and one.channel == known else one.channel
    found = _with_room(found, before, room, troubles, created_ms=configuration.created_ms)
    for name, why in why_lost(found).items():
        troubles.setdefault(name, why)
        lost, known = replace(found[name], dead_letter=""), before.get(name)
        found[name] = known if known is not None and lost == known else lost
    return found, troubles


class _Taken:
    """What channels take up together, as they come and go. The manner of those that say none is always among them."""

    def __init__(self, room: Room, channels: Iterable[Channel]) -> None:
        self._room = room
        self._manners = Counter[Hashable]()
        self._disk_bytes = self._schema_bytes = 0
        for channel in channels:
            self._count(channel, 1)

    def why_not(self, channel: Channel, instead_of: Channel | None) -> str:
        """Why there is no room for it; empty: it has it from now on, and the other one none."""
        if instead_of is not None:
            self._count(instead_of, -1)
        why = self._why_full(channel)
        if not why:
            self._count(channel, 1)
        elif instead_of is not None:
            self._count(instead_of, 1)
        return why

    def _why_full(self, channel: Channel) -> str:
        manners = len(self._manners.keys() | {*channel.manners, Manner()})
        if manners > MANNERS_MAX:
            return f"this and others {why_too_many(manners)}"
        most, needed = self._room.disk_bytes, self._needed_bytes(channel)
        if most is not None and needed and self._disk_bytes + needed > most:
            return (
                f"it may keep {needed} bytes on disk, and the sidecar has {most}, of which others may keep "
                f"{self._disk_bytes}: lower spool.maxBytes, or give the sidecar more (--spool-bytes)"
            )
        most = self._room.schema_bytes
        if (needed := _schema_bytes(channel)) and self._schema_bytes + needed > most:
            return (
                f"its schema may take {needed} bytes of memory, and all schemas of a sidecar have {most}, of which "
                f"others may take {self._schema_bytes}: lower its patterns' repetitions, or leave parts of it out"
            )
        return ""

    def _count(self, channel: Channel, by: int) -> None:
        for manner in set(channel.manners):
            self._manners[manner] += by
            if not self._manners[manner]:
                del self._manners[manner]
        self._disk_bytes += by * self._needed_bytes(channel)
        self._schema_bytes += by * _schema_bytes(channel)

    def _needed_bytes(self, channel: Channel) -> int:
        if channel.acknowledgement != "accepted":
            return 0
        return len(channel.spools) * disk_bytes(channel.spool.bytes_max, aside_bytes=self._room.aside_bytes)


def _with_room(
    wanted: Mapping[str, Channel],
    before: Mapping[str, Channel],
    room: Room,
    troubles: dict[str, str],
    *,
    created_ms: Mapping[str, int],
) -> dict[str, Channel]:
    """Those for which there is a producer, and a place on disk and in memory. What was there keeps its own; who changes
    may need what another one gives up, and so is asked again while that helps.
    """
    found = {name: before[name] for name in wanted if name in before}
    taken = _Taken(room, found.values())
    left = sorted(
        (name for name in wanted if wanted[name] is not found.get(name)),
        key=lambda one: (one not in found, created_ms.get(one, 0), one),  # nobody is older for being called so
    )
    full: dict[str, str] = {}
    for _ in range(_ROUNDS):
        full = {}
        for name in left:
            if why := taken.why_not(wanted[name], found.get(name)):
                full[name] = why
            else:
                found[name] = wanted[name]
        if len(full) in (0, len(left)):
            break
        left = [*full]
    for name, why in full.items():
        troubles.setdefault(name, why)
    return {name: found[name] for name in wanted if name in found}


def _schema_bytes(channel: Channel) -> int:
    return 0 if channel.schema is None else channel.schema.size_bytes


def _said(spec: bytes) -> dict[str, Any]:
    """Raises BadConfiguration, RecursionError."""
    try:
        return msgspec.json.decode(spec, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadConfiguration(f"spec: {error}: say what a channel is") from error


def _topics_in(said: Mapping[str, Any]) -> frozenset[str]:
    targets = said.get("targets")
    places = (said, *(targets if isinstance(targets, list) else ()))
    found = (one.get("topic") for one in places if isinstance(one, dict))
    return frozenset(topic for topic in found if isinstance(topic, str))


def _channel(name: str, spec: Mapping[str, Any]) -> Channel:
    try:
        return channel_of(ChannelResource.model_validate({"metadata": {"name": name}, "spec": spec}))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        value = first["input"]
        shown = "" if isinstance(value, (dict, list)) else f"{str(value)[:_SHOWN]!r}: "
        raise BadConfiguration(f"{field}: {shown}{first['msg']}: change it, or run a later sidecar") from error
    except InvalidTopicName as error:
        raise BadConfiguration(str(error)) from error
    except BadSchema as error:
        raise BadConfiguration(f"spec.schema: {error}") from error
