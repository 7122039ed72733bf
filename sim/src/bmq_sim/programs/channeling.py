"""Channels that are declared, changed and deleted, and a sidecar that follows them by whichever node it asks: it never
goes back, and has in the end what there is.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from bmq_controller.api.channel_watch import WATCH_PATH
from bmq_sim.client import ConnectionLost, SimClient
from bmq_sim.history import History, Told
from bmq_sim.rest import Rest

NAMES: Final = ("orders", "clicks", "bills")
NONE: Final = "none"
WAIT_S: Final = 10
AGAIN_S: Final = 0.5
FOLLOWED_TRIES: Final = 200


class ChannelAdministrator:
    """Changes one of a few channels at a time; each value of a channel is another topic."""

    def __init__(self, client: SimClient, history: History, rest: Rest, *, pause_s: float) -> None:
        self._client = client
        self._history = history
        self._rest = rest
        self._pause_s = pause_s

    async def run(self) -> None:
        """Until its client is stopped."""
        client, rest, rng = self._client, self._rest, self._client.rng
        for name in NAMES:
            self._history.initial[_register(name)] = NONE
        number = 0
        while not client.stopped:
            await client.rest(self._pause_s * rng.random())
            number += 1
            name, topic = rng.choice(NAMES), f"t{number}"
            path, spec, writes = f"/v1/channels/{name}", {"topic": topic}, [(_register(name), topic)]
            if rng.random() < 0.2:
                await rest.until_told("DELETE", path, fine=(404,), writes=[(_register(name), NONE)])
                continue
            put = await rest.until_told("PUT", path, {"spec": spec}, fine=(404,), writes=writes)
            if put.status == 404:
                await rest.until_told("POST", "/v1/channels", {"name": name, "spec": spec}, fine=(409,), writes=writes)

    async def look(self) -> dict[str, str]:
        """Topics by channel, as the leader tells them; for when all is well."""
        asked = self._history.turn()
        found = await self._rest.until_told("GET", "/v1/channels")
        topics = {one["name"]: str(one["spec"]["topic"]) for one in found.document["items"]}
        for name in NAMES:
            value = topics.get(name, NONE)
            told = Told(register=_register(name), value=value, asked=asked, told=self._history.turn())
            self._history.told.append(told)
        return topics


class ChannelFollower:
    """A sidecar's way to know channels: what changed since the version that it has, from any node."""

    def __init__(self, client: SimClient, history: History, rest: Rest) -> None:
        self._client = client
        self._history = history
        self._rest = rest
        self._version = ""
        self._topics: dict[str, str] = {}

    async def run(self) -> None:
        """Until its client is stopped."""
        while not self._client.stopped:
            await self._ask(self._client.rng.random() * WAIT_S)

    async def catch_up(self, wanted: Mapping[str, str]) -> None:
        """Has what there is, now that all is well."""
        for _ in range(FOLLOWED_TRIES):
            if self._topics == wanted:
                return
            await self._ask(1.0)
        self._history.refused.append(f"who follows channels has {self._topics}, and there are {dict(wanted)}")

    async def _ask(self, wait_s: float) -> None:
        try:
            answer = await self._rest.once("GET", f"{WATCH_PATH}?after={self._version}&wait_seconds={wait_s:.2f}")
        except ConnectionLost:
            answer = None
        if answer is None or answer.status != 200 or not answer.document:
            await asyncio.sleep(AGAIN_S)
            return
        changes: dict[str, Any] = answer.document
        if _revision(changes["version"]) < _revision(self._version):
            self._history.refused.append(f"channels went back from {self._version} to {changes['version']}")
        self._version = changes["version"]
        if changes["complete"]:
            self._topics = {}
        for name in changes["deleted"]:
            self._topics.pop(name, None)
        self._topics.update((one["name"], str(one["spec"]["topic"])) for one in changes["channels"])


def _revision(version: str) -> int:
    return int(version.rpartition("/")[2]) if version else -1


def _register(name: str) -> str:
    return f"the topic of channel {name}"
