"""Channels from a file of resources, as one writes them for Kubernetes."""

from pathlib import Path
from typing import Final

import yaml  # type: ignore[import-untyped]

from bmq.errors import ConfigurationError
from bmq_databus.channels.channel import Channel, channel_of
from bmq_resources.channel_sets import BadChannels, channels_in
from bmq_resources.value_schemas import BadSchema

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
    try:
        resources = channels_in(documents)
    except BadChannels as error:
        raise ConfigurationError(f"{path}: {error}") from error
    found: dict[str, Channel] = {}
    for name, resource in resources.items():
        try:
            found[name] = channel_of(resource)
        except BadSchema as error:
            raise ConfigurationError(
                f"{path}, channel {name}, spec.schema.json: {error}: see docs/databus.md"
            ) from error
    return found
