"""Channels from a file of resources, as one writes them for Kubernetes."""

from pathlib import Path
from typing import Any, Final

import yaml  # type: ignore[import-untyped]
from pydantic import ValidationError

from bmq.errors import ConfigurationError, InvalidTopicName
from bmq_databus.channels.channel import Channel, channel_of
from bmq_databus.channels.together import check_together
from bmq_databus.rules.schemas import BadSchema
from bmq_resources.base import API_VERSION, Part
from bmq_resources.channel import Channel as ChannelResource

FILE_BYTES_MAX: Final = 16 << 20


def channels_of(path: Path) -> dict[str, Channel]:
    """By name. Raises ConfigurationError: what, why and the remedy, for the first thing that is wrong."""
    try:
        with path.open("rb") as file:
            text = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}: name another file") from error
    if len(text) > FILE_BYTES_MAX:
        raise ConfigurationError(f"{path} has more than {FILE_BYTES_MAX >> 20} MiB: split it")
    try:
        documents = list(yaml.safe_load_all(text))
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f", line {mark.line + 1}"
        why = getattr(error, "problem", None) or (str(error).splitlines() or ["it is nested too deep"])[0]
        raise ConfigurationError(f"{path}{line}: it is not YAML: {why}") from error
    found: dict[str, Channel] = {}
    for number, document in enumerate(documents, 1):
        if document is None:
            continue
        channel = _channel(document, f"{path}, document {number}")
        if channel.name in found:
            raise ConfigurationError(f"{path}, document {number}: channel {channel.name} stands there twice")
        found[channel.name] = channel
    if not found:
        raise ConfigurationError(f"{path} has no Channel of {API_VERSION}: write one, as in docs/databus.md")
    try:
        check_together(found.values())
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from error
    return found


def _channel(document: Any, where: str) -> Channel:
    if not isinstance(document, dict) or document.get("kind") != "Channel":
        kind = document.get("kind") if isinstance(document, dict) else None
        what = "has no kind" if kind is None else f"is of kind {str(kind)[:40]!r}"
        raise ConfigurationError(f"{where} {what}: a file of channels has kind: Channel alone")
    try:
        return channel_of(ChannelResource.model_validate(document))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        value = first["input"]
        shown = "" if isinstance(value, (dict, list, Part)) else f"{str(value)[:60]!r}: "
        raise ConfigurationError(f"{where}, {field}: {shown}{first['msg']}: see docs/databus.md") from error
    except BadSchema as error:
        raise ConfigurationError(f"{where}, spec.schema.json: {error}: see docs/databus.md") from error
    except InvalidTopicName as error:
        raise ConfigurationError(f"{where}, spec.topic: {error}") from error
