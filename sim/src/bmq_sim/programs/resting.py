"""Who administers by REST: makes topics, grows them, sets what they have, reads every list by small pages, deletes
again.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from bmq_sim.client import SimClient
from bmq_sim.history import History, Told
from bmq_sim.rest import Answer, Rest

LISTS: Final = ("/v1/topics", "/v1/groups", "/v1/nodes", "/v1/lanes", "/v1/placement")
PAGES: Final = ("/v1/cluster", "/v1/self", "/v1/configs", "/v1/balance", "/openapi.json")
RETENTIONS: Final = ("604800000", "86400000", "-1")
SEEN_TRIES: Final = 20
SEEN_AGAIN_S: Final = 0.5


class RestAdministrator:
    """One topic at a time."""

    def __init__(self, client: SimClient, history: History, rest: Rest, *, pause_s: float) -> None:
        self._client = client
        self._history = history
        self._rest = rest
        self._pause_s = pause_s

    async def run(self) -> None:
        """Until its client is stopped."""
        client, rest, rng = self._client, self._rest, self._client.rng
        number = 0
        while not client.stopped:
            await client.rest(self._pause_s * rng.random())
            number += 1
            name = f"rested-{number}"
            await rest.until_told("POST", "/v1/topics", {"name": name, "partitions": 1}, fine=(409,))
            await self._expect(name, 1)
            # an earlier try did it
            await rest.until_told("POST", f"/v1/topics/{name}/partitions", {"total": 2}, fine=(400,))
            await self._expect(name, 2)
            await self._configure(name, rng.choice(RETENTIONS))
            await self._look(rng.choice(LISTS), rng.choice(PAGES))
            await client.rest(self._pause_s * rng.random())
            await rest.until_told("DELETE", f"/v1/topics/{name}", fine=(404,))
            found = await self._seen(f"/v1/topics/{name}", lambda answer: answer.status == 404)
            if found.status != 404:
                self._history.refused.append(f"{name} was deleted and is there: {found.document}")

    async def _expect(self, name: str, partitions: int) -> None:
        asked = self._history.turn()
        found = await self._seen(
            f"/v1/topics/{name}",
            lambda answer: answer.status == 200 and answer.document.get("partitions") == partitions,
        )
        told = str(found.document.get("partitions")) if found.status == 200 else "none"
        register = f"the number of partitions of {name}, of which {partitions} were acknowledged"
        self._history.initial[register] = str(partitions)
        self._history.told.append(Told(register=register, value=told, asked=asked, told=self._history.turn()))

    async def _configure(self, name: str, value: str) -> None:
        register = f"retention.ms of {name}"
        await self._rest.until_told(
            "PATCH", f"/v1/topics/{name}/configs", {"retention.ms": value}, writes=[(register, value)]
        )
        asked = self._history.turn()
        found = await self._seen(
            f"/v1/topics/{name}",
            lambda answer: answer.status == 200 and answer.document["configs"].get("retention.ms") == value,
        )
        if found.status == 200:
            told = found.document["configs"].get("retention.ms", "")
            self._history.told.append(Told(register=register, value=told, asked=asked, told=self._history.turn()))

    async def _seen(self, path: str, is_so: Callable[[Answer], bool]) -> Answer:
        """The first answer that is so, or the last of many: a node tells what it knows, and one that has just slept
        knows nothing new yet.
        """
        for _ in range(SEEN_TRIES):
            found = await self._rest.until_told("GET", path, fine=(404,))
            if is_so(found):
                break
            await asyncio.sleep(SEEN_AGAIN_S)
        return found

    async def _look(self, listed: str, page: str) -> None:
        await self._rest.until_told("GET", page)
        after, count = "", 0
        while count < 10:
            found = await self._rest.until_told("GET", f"{listed}?limit=1{after}", fine=(400,))
            token = found.document.get("continue") if isinstance(found.document, dict) else None
            if not token:
                return
            after = f"&continue={token}"
            count += 1
