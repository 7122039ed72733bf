"""Who may write, and to which channel."""

from collections.abc import Container, Mapping
from typing import Any, Protocol

from bmq.naming.bearer import bearer_of
from bmq_databus.channels.channel import Channel
from bmq_databus.errors import DatabusError, NoSuchChannel, NothingKnown, TurnedOff


class Ending(DatabusError):
    """The sidecar takes nothing more."""


class Tokens(Protocol):
    """Those of which a request presents one."""

    async def admits(self, presented: str) -> bool:
        """Compares in constant time."""


class Followed(Protocol):
    """A control plane whose channels they are."""

    @property
    def known(self) -> object | None:
        """None: which channels there are is not known yet."""

    @property
    def names(self) -> Container[str]:
        """Those of its channels and of their topics, also of such as this sidecar cannot make."""

    @property
    def troubles(self) -> Mapping[str, str]:
        """Why channels are not what they are to be, by name."""

    def status(self) -> Mapping[str, Any]:
        """For people: what is known, and how well."""


class Topics(Protocol):
    """Those of the sidecar's cluster."""

    async def named(self, name: str) -> Channel:
        """One as a channel. Raises NothingKnown, NoSuchChannel."""


class Admission:
    """The same for all ways by which requests come."""

    def __init__(
        self,
        channels: Mapping[str, Channel],
        *,
        tokens: Tokens | None = None,
        configuration: Followed | None = None,
        any_topic: Topics | None = None,
    ) -> None:
        """`channels`: as they are whenever it is asked. `tokens` None: whoever reaches it may write. `configuration`
        None: channels are those that it began with. `any_topic`: who knows those that are written by their names where
        no channel is declared; None: they are not.
        """
        self._channels = channels
        self._tokens = tokens
        self._configuration = configuration
        self._any_topic = any_topic
        self._names = frozenset(topic for one in channels.values() for topic in one.topics)
        self.is_ending = False
        """Set once nothing more is taken."""

    @property
    def knows_nothing(self) -> bool:
        """Whether it is not known yet which channels there are."""
        return self._configuration is not None and self._configuration.known is None

    async def why_unknown(self, authorization: str) -> str:
        """What is wrong with what a request presents; empty: nothing."""
        if self._tokens is None:
            return ""
        presented = bearer_of(authorization)
        if await self._tokens.admits(presented):
            return ""
        return "its token is none of this sidecar's" if presented else "it has no bearer token"

    async def named(self, name: str) -> Channel:
        """The channel, whether it takes messages or not. Raises NothingKnown, NoSuchChannel."""
        channel = self._channels.get(name)
        if channel is not None:
            return channel
        if self.knows_nothing:
            raise NothingKnown("which channels there are is not known yet: try again")
        if self._configuration is not None and (why := self._configuration.troubles.get(name)):
            raise NoSuchChannel(f"channel {name} is not served here: {why}")
        if self._any_topic is None:
            known = ", ".join(sorted(self._channels)[:10])
            raise NoSuchChannel(f"there is no channel {name[:200]!r}; there are {known or 'none'}")
        if name in (self._names if self._configuration is None else self._configuration.names):
            theirs = ", ".join(one.name for one in self._channels.values() if name in one.topics)
            raise NoSuchChannel(
                f"topic {name} is not written by its name, as a channel writes it by its rules: write to that "
                f"({theirs or 'which is not served: /readyz says why'})"
            )
        return await self._any_topic.named(name)

    def check(self, channel: Channel) -> None:
        """That it takes messages. Raises TurnedOff, Ending."""
        if not channel.enabled:
            raise TurnedOff(f"channel {channel.name} is turned off")
        if self.is_ending:
            raise Ending("this sidecar is ending: try again")
