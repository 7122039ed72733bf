"""What a control plane answers, read within bounds: whoever answers in a cluster's place takes neither the sidecar's
memory nor its time. Pure.

What channels say stays as it came until each is read alone: a later version of the sidecar finds what an earlier one
did not understand.
"""

from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

import msgspec

from bmq.config.limits import KIB, MIB
from bmq.naming.channels import CHANNEL_NAME_LENGTH_MAX
from bmq_databus.errors import BadConfiguration

T = TypeVar("T")

ANSWER_BYTES_MAX: Final = 64 * MIB
"""As much as a cluster keeps of all configurations, where its config_bytes_max is as by default."""
ANSWER_ELEMENTS_MAX: Final = 4_000_000
"""Commas, lists and objects of an answer: in those it takes time, of which others have none meanwhile."""
CHANNELS_MAX: Final = 100_000
"""The most that channels_max of a cluster may be; an answer names no more, those that are gone included."""
SPEC_BYTES_MAX: Final = MIB
"""The most that channel_bytes_max of a cluster may be."""
SPEC_ELEMENTS_MAX: Final = 100_000
"""As above, of one channel."""
VERSION_CHARS_MAX: Final = 256
"""Nodes' have some 60. It is part of the address that is asked for what changed since."""
_ELEMENTS: Final = (b",", b"[", b"{")


class Name(str):
    """A channel's. A type of its own, as each one counts while an answer is read."""

    __slots__ = ()


class Declared(msgspec.Struct, frozen=True):
    """A channel, as the control plane has it."""

    name: Name
    spec: msgspec.Raw
    created_ms: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)] = 0
    """When it was made; 0: not known, as by an earlier version."""


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """An answer of the control plane's."""

    version: Annotated[str, msgspec.Meta(max_length=VERSION_CHARS_MAX)]
    complete: bool
    """Whether these are all channels that there are."""
    channels: list[Declared]
    deleted: list[Name] = []


def changes_of(data: bytes) -> Changes:
    """What an answer says. Takes up to some 0.1 s. Raises BadConfiguration."""
    try:
        return read_as(Changes, data)
    except BadConfiguration as error:
        raise BadConfiguration(f"the control plane's answer is none: {error}") from error


def read_as(kind: type[T], data: bytes) -> T:
    """JSON from a control plane, or of a file that says what one said. Raises BadConfiguration, with why alone."""
    elements = elements_in(data)
    if elements > ANSWER_ELEMENTS_MAX:
        raise BadConfiguration(f"it has {elements} elements, and {ANSWER_ELEMENTS_MAX} at most are read")
    try:
        return msgspec.json.decode(data, type=kind, dec_hook=_counted_names())
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadConfiguration(str(error)) from error
    except RecursionError:
        why = "it is nested too deeply"
    raise BadConfiguration(why)


def why_beyond(spec: bytes) -> str:
    """Why what a channel says is more than is read; empty: it is not."""
    if len(spec) > SPEC_BYTES_MAX:
        return f"spec has {len(spec)} bytes, and a sidecar reads {SPEC_BYTES_MAX // KIB} KiB of each channel: say less"
    if (elements := elements_in(spec)) > SPEC_ELEMENTS_MAX:
        return f"spec has {elements} elements, and a sidecar reads {SPEC_ELEMENTS_MAX} of each channel: say less"
    return ""


def elements_in(data: bytes) -> int:
    """At least as many elements as JSON has, but for one; those within texts count, too. Other threads have their turns
    meanwhile.
    """
    return sum(data.count(one, at, at + MIB) for at in range(0, len(data), MIB) for one in _ELEMENTS)


def _counted_names() -> Callable[[type, Any], Any]:
    """Reads names. What is read between two of them is all that other threads wait for."""
    left = CHANNELS_MAX

    def name_of(_: type, value: Any) -> Name:
        nonlocal left
        left -= 1
        if left < 0:
            raise ValueError(f"more than {CHANNELS_MAX} channels")
        if not isinstance(value, str):
            raise ValueError("a channel's name is no text")
        if len(value) > CHANNEL_NAME_LENGTH_MAX:
            raise ValueError(f"a channel's name has more than {CHANNEL_NAME_LENGTH_MAX} characters")
        return Name(value)

    return name_of
