"""What of a message's value is written nowhere. Pure."""

from dataclasses import dataclass
from typing import Any

import msgspec

from bmq_databus.rules.places import Edits, NotJson, edited
from bmq_resources.json_paths import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Redaction:
    """No place is within another."""

    replace: tuple[Path, ...] = ()
    remove: tuple[Path, ...] = ()
    text: str = "[redacted]"


def edits_of(rule: Redaction) -> Edits:
    """What it changes, for `redacted`."""
    edits: dict[str | int, Any] = {}
    text = msgspec.json.encode(rule.text)
    for path, edit in [*((path, text) for path in rule.replace), *((path, None) for path in rule.remove)]:
        here = edits
        for step in path[:-1]:
            here = here.setdefault(step, {})
        here[path[-1]] = edit
    return edits


def redacted(value: bytes | None, edits: Edits) -> bytes | None:
    """The value without it. Raises NotJson: then what is to be taken out may be anywhere in it; Unfit: it is too large
    to look.
    """
    if value is None:
        return None
    try:
        return edited(value, edits)
    except NotJson as error:
        raise NotJson(f"{error}, so nothing can be taken out of it, as this channel has to (redact)") from None
