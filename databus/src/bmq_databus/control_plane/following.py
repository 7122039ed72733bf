"""Follows a control plane: asks for what changed, has it applied, and remembers it.

One of its addresses is asked for what changed since the version that is known, and answers when something does. Where
it does not answer the next one is asked, after a pause that grows. What is no answer changes nothing.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import structlog

from bmq.errors import ConfigurationError
from bmq.ports import Clock, Rng
from bmq.runtime.bearer_tokens import listed_tokens
from bmq_admin.client import AdminClient
from bmq_admin.errors import AdminError
from bmq_admin.pages import watched_channels
from bmq_databus import metrics
from bmq_databus.channels.channel import Channel
from bmq_databus.control_plane.answers import ANSWER_BYTES_MAX, changes_of
from bmq_databus.control_plane.configuration import (
    Configuration,
    Made,
    Room,
    changed,
    channels_in,
    made_of,
    names_in,
    not_read,
)
from bmq_databus.control_plane.known import KnownFile
from bmq_databus.errors import BadConfiguration
from bmq_databus.requests.readiness import TROUBLES_TOLD, told

WAIT_S: Final = 30.0
"""How long an answer is waited for where nothing changes; each time up to a fifth less."""
SLACK_S: Final = 10.0
"""How much later it may come."""
PACE_S: Final = 0.2
"""How soon it is asked again after an answer, at the earliest."""
CONFIRMED_EVERY_S: Final = 600.0
"""How often it is written down that what is known was confirmed."""
AGAIN_FIRST_S: Final = 0.5
AGAIN_MAX_S: Final = 15.0
BUG_TOLD_EVERY_S: Final = 600.0
"""How often the log has a bug's traceback."""

Apply = Callable[[Mapping[str, Channel]], Awaitable[dict[str, str]]]
"""Makes these the channels; why some are not so, by name."""
Ask = Callable[[str, str, float], Awaitable[bytes]]
"""(address, version, how long to wait in seconds) → answer. Raises AdminError."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlane:
    """Where it is."""

    urls: Sequence[str]
    state: Path
    """The folder in which what is known lies."""
    token_file: Path | None = None
    room: Room = Room()


class Following:
    """`begin`, then `run` until it is cancelled, then `close`."""

    def __init__(self, plane: ControlPlane, apply: Apply, *, clock: Clock, rng: Rng, ask: Ask | None = None) -> None:
        self._urls = plane.urls
        self._at = int(rng.random() * len(plane.urls))
        self._file = KnownFile(plane.state)
        self._apply = apply
        self._room = plane.room
        self._clock = clock
        self._rng = rng
        self._asking = _Asking(plane.token_file)
        self._ask: Ask = self._asking.ask if ask is None else ask
        self._loop = asyncio.get_running_loop()
        self._known: Configuration | None = None
        self._applied: dict[str, Channel] = {}
        self._made: dict[str, Made] = {}
        self._not_made: dict[str, str] = {}
        self._not_applied: dict[str, str] = {}
        """Why channels are not what they are to be: by what they say, and by what this sidecar has."""
        self._confirmed_ms: int | None = None
        self._kept_s = float("-inf")
        self._unanswered = "it was not asked yet"
        """Why the control plane says nothing; empty: it does."""
        self._is_told = False
        """Whether the log says that it does not."""
        self._bug_told_s = float("-inf")
        self.troubles: dict[str, str] = {}
        """Why channels are not what they are to be, by name."""
        self.names: frozenset[str] = frozenset()
        """Those of all channels and of their topics, also of such as are in trouble."""

    @property
    def known(self) -> Configuration | None:
        """None: nothing is known yet."""
        return self._known

    @property
    def age_s(self) -> float:
        """How long ago the control plane confirmed what is known; NaN: it never did."""
        return math.nan if self._confirmed_ms is None else max(0, self._clock.now_ms() - self._confirmed_ms) / 1000

    def status(self) -> dict[str, Any]:
        """For people: what is known, and how well."""
        return {
            "version": None if self._known is None else self._known.version,
            "ageSeconds": None if self._confirmed_ms is None else round(self.age_s, 1),
            "controlPlane": self._unanswered or "ok",
            **told("troubles", self.troubles),
        }

    async def begin(self) -> None:
        """Takes up what lies on disk."""
        metrics.CONFIGURATION_AGE.set_function(lambda: self.age_s)
        try:
            found = await self._loop.run_in_executor(None, self._file.read)
            if found is not None:
                configuration, self._confirmed_ms = found
                await self._take(configuration)
        except BadConfiguration as error:
            log.error("last known channels are not there", why=str(error))
            return
        except Exception as bug:  # noqa: BLE001 - a sidecar that starts without them knows them in a moment
            self._tell_of_bug(bug)
            return
        if found is not None:
            log.info("serves by the last known channels", channels=len(self._applied), age_s=round(self.age_s))

    async def run(self) -> None:
        """Follows what changes. A bug that an answer meets is told, and the answer is none."""
        again_s = AGAIN_FIRST_S
        while True:
            try:
                is_answered = await self._look()
            except Exception as bug:  # noqa: BLE001 - what is known is served, and the next answer may be another one
                is_answered = False
                self._at += 1
                self._unanswered = f"its answer meets a bug: {bug!r:.200}"
                self._tell_of_bug(bug)
            if is_answered:
                again_s = AGAIN_FIRST_S
                await asyncio.sleep(PACE_S)
                continue
            await asyncio.sleep(again_s * (0.5 + self._rng.random() / 2))
            again_s = min(2 * again_s, AGAIN_MAX_S)

    async def close(self) -> None:
        """Its connections, too. What the metrics tell is nobody's then."""
        metrics.CONFIGURATION_AGE.set_function(lambda: math.nan)
        await self._asking.close()

    async def _look(self) -> bool:
        """Whether somebody answered."""
        url = self._urls[self._at % len(self._urls)]
        version = "" if self._known is None else self._known.version
        wait_s = WAIT_S * (1 - self._rng.random() / 5)
        try:
            answer = self._ask(url, version, wait_s)
            after = await self._loop.run_in_executor(None, _after, self._known, await answer)
        except (AdminError, BadConfiguration, ConfigurationError) as error:
            if isinstance(error, BadConfiguration):
                metrics.CONFIGURATION_REFUSED.inc()
            self._at += 1
            if not self._is_told or self._known is None:
                self._is_told = True
                log.warning("control plane does not answer", url=url, why=str(error), age_s=round(self._age_shown, 1))
            self._unanswered = str(error)
            return False
        if self._unanswered:
            log.info("control plane answers", url=url, version=after.version)
            self._unanswered, self._is_told = "", False
        self._confirmed_ms = self._clock.now_ms()
        is_news = self._known is None or after.version != self._known.version
        if is_news:
            await self._take(after)
        elif self._not_applied:
            await self._apply_again()
        if is_news:
            log.info("channels changed", channels=len(self._applied), version=after.version)
        if is_news or self._loop.time() - self._kept_s >= CONFIRMED_EVERY_S:
            await self._keep(after)
        return True

    @property
    def _age_shown(self) -> float:
        return -1.0 if self._confirmed_ms is None else self.age_s

    async def _take(self, configuration: Configuration) -> None:
        await self._make(configuration)
        channels, troubles = await self._loop.run_in_executor(
            None, channels_in, configuration, self._applied, self._room, self._made
        )
        self._not_applied = await self._apply(channels)
        self._known = configuration
        self.names = names_in(self._made).union(*(one.topics for one in channels.values()))
        self._applied = channels
        self._not_made = troubles
        self._tell()

    async def _apply_again(self) -> None:
        """What the sidecar had no folder or disk for: it may have them now. Nothing else is another without news."""
        self._not_applied = await self._apply(self._applied)
        self._tell()

    def _tell(self) -> None:
        troubles = self._not_made | self._not_applied
        new = [name for name, why in troubles.items() if self.troubles.get(name) != why]
        for name in new[:TROUBLES_TOLD]:
            log.error("channel is not what the control plane wants", channel=name, why=troubles[name])
        if more := len(new[TROUBLES_TOLD:]):
            log.error("more channels are not what the control plane wants", channels=more)
        self.troubles = troubles
        metrics.CONFIGURATION_TROUBLES.set(len(troubles))

    async def _make(self, configuration: Configuration) -> None:
        """Those alone whose specs are others than before: schemas take long, and the loop has messages to write."""
        made: dict[str, Made] = {}
        for name, spec in configuration.specs.items():
            known = self._made.get(name)
            if known is None or known.spec != spec:
                known = await self._loop.run_in_executor(None, made_of, name, spec)
            made[name] = known
        self._made = made | not_read(configuration)

    def _tell_of_bug(self, bug: Exception) -> None:
        if self._loop.time() - self._bug_told_s >= BUG_TOLD_EVERY_S:
            self._bug_told_s = self._loop.time()
            log.error("bug: what the control plane says cannot be taken up", exc_info=bug)

    async def _keep(self, configuration: Configuration) -> None:
        assert self._confirmed_ms is not None
        try:
            await self._loop.run_in_executor(
                None, partial(self._file.write, configuration, confirmed_ms=self._confirmed_ms)
            )
        except BadConfiguration as error:
            log.error("last known channels are not on disk", why=str(error))
        else:
            self._kept_s = self._loop.time()


def _after(known: Configuration | None, answer: bytes) -> Configuration:
    """Takes up to some 0.2 s. Raises BadConfiguration."""
    return changed(known, changes_of(answer))


class _Asking:
    """A client for each address. The token is read anew where somebody does not answer."""

    def __init__(self, token_file: Path | None) -> None:
        self._token_file = token_file
        self._clients: dict[str, AdminClient] = {}

    async def ask(self, url: str, version: str, wait_s: float) -> bytes:
        """Raises AdminError, ConfigurationError."""
        client = self._clients.get(url)
        if client is None:
            loop = asyncio.get_running_loop()
            token = await loop.run_in_executor(None, token_in, self._token_file)
            client = self._clients[url] = AdminClient(
                url, token=token, timeout_s=WAIT_S + SLACK_S, answer_bytes_max=ANSWER_BYTES_MAX
            )
        try:
            return await client.ask(watched_channels(version, wait_s=wait_s))
        except AdminError:
            await self._clients.pop(url).close()
            raise

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()


def token_in(path: Path | None) -> str:
    """The first one that the file lists, "" without a file. Blocking. Raises ConfigurationError."""
    return "" if path is None else listed_tokens(path, option="--control-plane-token-file")[0]
