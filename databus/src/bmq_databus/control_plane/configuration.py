"""What a control plane says of channels, and which channels that makes. Pure.

What came is kept as it came, so that a later version of the sidecar finds what an earlier one did not understand.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
from pydantic import ValidationError

from bmq.errors import ConfigurationError, InvalidTopicName
from bmq_databus.channels.channel import Channel, channel_of
from bmq_databus.channels.together import check_dead_letters
from bmq_databus.errors import BadConfiguration
from bmq_databus.rules.schemas import BadSchema
from bmq_resources.channel import Channel as ChannelResource

_SHOWN: Final = 60


class Declared(msgspec.Struct, frozen=True):
    """A channel, as the control plane has it."""

    name: str
    spec: dict[str, Any]


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """An answer of the control plane's."""

    version: str
    complete: bool
    """Whether these are all channels that there are."""
    channels: list[Declared]
    deleted: list[str] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """All that is known. `version` is the control plane's word for it."""

    version: str
    specs: Mapping[str, Mapping[str, Any]]


def changes_of(data: bytes) -> Changes:
    """Raises BadConfiguration."""
    try:
        return msgspec.json.decode(data, type=Changes)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadConfiguration(f"the control plane's answer is none: {error}") from error


def changed(before: Configuration | None, changes: Changes) -> Configuration:
    """What is known after an answer. Raises BadConfiguration."""
    if before is None and not changes.complete:
        raise BadConfiguration("the control plane's answer has changes alone, of what was never told")
    specs = {} if before is None or changes.complete else dict(before.specs)
    for name in changes.deleted:
        specs.pop(name, None)
    specs.update((one.name, one.spec) for one in changes.channels)
    return Configuration(version=changes.version, specs=specs)


def channels_in(
    configuration: Configuration, before: Mapping[str, Channel]
) -> tuple[dict[str, Channel], dict[str, str]]:
    """The channels, by name, and why some of them cannot be made: those stay as they were `before`, if they were. One
    that is as before is the same. Where dead letters lead nowhere, what would be one is refused.
    """
    found: dict[str, Channel] = {}
    troubles: dict[str, str] = {}
    lost: list[Channel] = []
    for name, spec in configuration.specs.items():
        known = before.get(name)
        try:
            made = _channel(name, spec)
        except BadConfiguration as error:
            troubles[name] = str(error)
            if known is not None:
                found[name] = known
            continue
        found[name] = known if known is not None and made == known else made
    for name, channel in found.items():
        try:
            check_dead_letters(name, found)
        except ConfigurationError as error:
            troubles.setdefault(name, str(error))
            lost.append(channel)
    found.update({channel.name: replace(channel, dead_letter="") for channel in lost})
    return found, troubles


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
        raise BadConfiguration(f"spec.topic: {error}") from error
    except BadSchema as error:
        raise BadConfiguration(f"spec.schema: {error}") from error
