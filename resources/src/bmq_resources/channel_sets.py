"""What the channels of one sidecar keep to, each by itself and all together: the same for a file, for a channel set of
Kubernetes, and for what a control plane says. Pure.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from pydantic import ValidationError

from bmq.errors import InvalidTopicName
from bmq.naming.names import check_topic_name
from bmq_resources.base import API_VERSION, Part
from bmq_resources.channel import Channel

MANNERS_MAX: Final = 8
"""Producers for one purpose, and their threads, are so many at most."""
SCHEMAS_BYTES_MAX: Final = 64 << 20
"""What the schemas of a cluster's channels take of a sidecar's memory, in all."""
ASIDE_BYTES: Final = 128 << 20
"""What a channel keeps of what was refused, and as much of damaged segments: the defaults of `bmq databus serve`."""
SLACK_BYTES: Final = 64 << 20
"""What is on disk of a spool beside its messages: notes of what was sent, the segment that is begun."""
CIRCLE_SHOWN: Final = 10
"""So many channels of a circle are told."""
_SHOWN: Final = 60


class BadChannels(Exception):
    """No sidecar serves them: which, why, and the remedy."""


class Member(Protocol):
    """What counts of a channel for the others of its sidecar."""

    @property
    def dead_letter(self) -> str:
        """The channel that gets what its rules do not take; empty: none."""

    @property
    def manners(self) -> Sequence[Hashable]:
        """Those that its messages are sent in: a producer each."""


def channels_in(documents: Iterable[Any]) -> dict[str, Channel]:
    """By what applications call them; documents of nothing are passed over. Raises BadChannels, for the first thing
    that is wrong.
    """
    found: dict[str, Channel] = {}
    for number, document in enumerate(documents, 1):
        if document is None:
            continue
        channel = _channel(document, f"document {number}")
        if channel.channel_name in found:
            raise BadChannels(f"document {number}: channel {channel.channel_name} stands there twice: leave one out")
        found[channel.channel_name] = channel
    if not found:
        raise BadChannels(f"there is no Channel of {API_VERSION}: write one, as in docs/databus.md")
    check_together(found)
    return found


def check_channel(channel: Channel) -> None:
    """What no model says of one. Raises InvalidTopicName, with the field."""
    for field, topic in channel.topics.items():
        try:
            check_topic_name(topic)
        except InvalidTopicName as error:
            raise InvalidTopicName(f"{field}: {error}") from None


def check_together(channels: Mapping[str, Member]) -> None:
    """Raises BadChannels."""
    for why in why_lost(channels).values():
        raise BadChannels(why)
    manners: dict[Hashable, str] = {}
    for name, channel in channels.items():
        for manner in channel.manners:
            manners.setdefault(manner, name)
    if len(manners) > MANNERS_MAX:
        raise BadChannels(f"channels {', '.join(dict.fromkeys(manners.values()))} {why_too_many(len(manners))}")


def why_lost(channels: Mapping[str, Member]) -> dict[str, str]:
    """Why dead letters lead nowhere, by the channels whose do. Each channel is looked at once."""
    known: dict[str, str] = {}
    for first in channels:
        way: dict[str, None] = {}
        at, why = first, None
        while why is None:
            if at in known:
                why = known[at]
            elif at in way:
                names = list(way)
                why = _circle(names[names.index(at) :])
            else:
                way[at] = None
                following = channels[at].dead_letter
                if following == "":
                    why = ""
                elif following not in channels:
                    why = f"channel {at}: its deadLetter {following} is no channel here: write one, or leave it out"
                at = following
        known.update(dict.fromkeys(way, why))
    return {name: why for name, why in known.items() if why}


def _circle(names: list[str]) -> str:
    """The same whichever of them the way comes to first."""
    first = names.index(min(names))
    names = [*names[first:], *names[:first]]
    shown = names[:CIRCLE_SHOWN]
    more = [] if len(names) == len(shown) else [f"{len(names) - len(shown)} more"]
    way = " → ".join([*shown, *more, names[0]])
    return f"channel {names[0]}: its dead letters go in a circle ({way}): leave deadLetter out of one"


def why_too_many(count: int) -> str:
    """Why channels cannot be sent in so many manners."""
    return (
        f"are sent in {count} manners (partitioner, batching, compression, cluster), and each needs a producer of its "
        f"own, of which there are {MANNERS_MAX} at most: let more of them have the same"
    )


def disk_bytes(max_bytes: int, *, aside_bytes: int = 2 * ASIDE_BYTES) -> int:
    """What a channel of `accepted` may have on disk in all, whose spool may have `max_bytes`. `aside_bytes`: what it
    keeps of refused messages and of damaged segments.
    """
    return max_bytes + aside_bytes + SLACK_BYTES


def _channel(document: Any, where: str) -> Channel:
    if not isinstance(document, dict) or document.get("kind") != "Channel":
        kind = document.get("kind") if isinstance(document, dict) else None
        what = "has no kind" if kind is None else f"is of kind {str(kind)[:40]!r}"
        raise BadChannels(f"{where} {what}: channels are documents of kind: Channel alone")
    try:
        channel = Channel.model_validate(document)
        check_channel(channel)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        value = first["input"]
        shown = "" if isinstance(value, (dict, list, Part)) else f"{str(value)[:_SHOWN]!r}: "
        raise BadChannels(f"{where}, {field}: {shown}{first['msg']}: see docs/databus.md") from None
    except InvalidTopicName as error:
        raise BadChannels(f"{where}, {error}") from None
    return channel
