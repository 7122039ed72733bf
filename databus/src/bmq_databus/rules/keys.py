"""Where a message's key comes from. Pure."""

from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from bmq_databus.errors import Unfit
from bmq_databus.messages.forms import NewMessage
from bmq_databus.rules.places import NotJson, found_at
from bmq_resources.json_paths import Path

_text: Final = msgspec.json.Decoder(str).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRule:
    """One of `field`, `header` and `constant` is said."""

    field: Path = ()
    header: str = ""
    constant: bytes = b""
    when_missing: Literal["keyless", "reject"] = "reject"
    said: str = ""
    """As it stands in the channel."""


def key_of(rule: KeyRule, new: NewMessage) -> bytes | None:
    """The key that the rule finds, or the message's own where it finds none. Raises Unfit where there is neither, and
    has to be, and where the value is too large to look.
    """
    found = _found(rule, new)
    if found is None:
        found = new.key
    if found is None and rule.when_missing == "reject":
        raise Unfit(f"it has no key: there is nothing at {rule.said}, nor does it say a key itself")
    return found


def _found(rule: KeyRule, new: NewMessage) -> bytes | None:
    if rule.constant:
        return rule.constant
    if rule.header:
        return next((content for name, content in reversed(new.headers) if name == rule.header), None)
    if new.value is None:
        return None
    try:
        json = found_at(new.value, rule.field)
        if json is None or json == b"null":
            return None
        return _text(json).encode() if json[:1] == b'"' else json
    except (NotJson, msgspec.MsgspecError, UnicodeError):
        return None
