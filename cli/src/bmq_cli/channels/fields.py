"""Fields of a channel's spec as they are written on a command line: `spool.maxBytes=1048576`. Pure.

What a channel may say is the model's, and grows: a command line says any field of it by its path, and the cluster
refuses what is none.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import yaml  # type: ignore[import-untyped]

from bmq_cli.terminal.exit_codes import CommandFailed, ExitCode


def with_fields(spec: Mapping[str, Any], *, given: Sequence[str], taken: Sequence[str]) -> dict[str, Any]:
    """The spec with fields set by `given` (PATH=VALUE, the value as YAML has it) and without those of `taken` (paths).
    Raises CommandFailed.
    """
    after: dict[str, Any] = _copied(spec)
    for path in taken:
        *parents, last = _parts("--unset", path)
        part = _within(after, parents, made=False)
        if part is not None:
            part.pop(last, None)
    for text in given:
        path, equals, value = text.partition("=")
        if not equals:
            raise _unusable("--set", text, "write FIELD=VALUE, for example spool.maxBytes=1048576")
        *parents, last = _parts("--set", path)
        part = _within(after, parents, made=True)
        assert part is not None
        part[last] = _value(text, value)
    return after


def _within(spec: dict[str, Any], parents: Sequence[str], *, made: bool) -> dict[str, Any] | None:
    part = spec
    for name in parents:
        inner = part.get(name)
        if not isinstance(inner, dict):
            if not made:
                return None
            inner = part[name] = {}
        part = inner
    return part


def _parts(option: str, path: str) -> list[str]:
    parts = path.strip().split(".")
    if not all(parts):
        raise _unusable(option, path, "name a field of the spec, for example spool.maxBytes")
    return parts


def _value(text: str, value: str) -> Any:
    try:
        return yaml.safe_load(value)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise _unusable("--set", text, "write a value as YAML has it, in quotes where it has signs") from None


def _copied(value: Any) -> Any:
    return {name: _copied(inner) for name, inner in value.items()} if isinstance(value, dict) else value


def _unusable(option: str, text: str, remedy: str) -> CommandFailed:
    return CommandFailed(f"{option} {text[:60]}", "it names no field", remedy, code=ExitCode.USAGE)
