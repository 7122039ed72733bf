"""Offsets that are committed for a few seconds: they are gone in the end, and what was committed for long is not."""

import asyncio
from typing import Any, Final

from bmq.wire.messages import Message
from bmq_sim.client import (
    FIND_COORDINATOR,
    NOT_COORDINATOR,
    OFFSET_COMMIT,
    OFFSET_COMMIT_WITH_RETENTION,
    OFFSET_FETCH,
    RETRIABLE,
    THROTTLING_QUOTA_EXCEEDED,
    ConnectionLost,
    SimClient,
)
from bmq_sim.history import History, Place
from bmq_sim.programs.asking import codes_of

SHORT_MS: Final = 2_000
LONG_MS: Final = 24 * 60 * 60 * 1000
GONE_WITHIN_S: Final = 60.0
"""After all is well: longer than coordinators' rounds are apart, and than one takes to load."""


class OffsetExpirer:
    """Each group commits once, for a short time in one partition and for a long one in another."""

    def __init__(self, client: SimClient, history: History, *, short: Place, long: Place, pause_s: float) -> None:
        self._client = client
        self._history = history
        self._kept_ms = {short: SHORT_MS, long: LONG_MS}
        self._pause_s = pause_s
        self._groups: dict[str, int] = {}
        """What each has committed."""

    async def run(self) -> None:
        """Until its client is stopped."""
        while not self._client.stopped:
            await self._client.rest(self._pause_s * self._client.rng.random())
            offset = len(self._groups) + 1
            group = f"expiring-{offset}"
            for place, kept_ms in self._kept_ms.items():
                part = {"partition_index": place.partition, "committed_offset": offset, "committed_metadata": ""}
                fields = {
                    "group_id": group,
                    "generation_id_or_member_epoch": -1,
                    "member_id": "",
                    "retention_time_ms": kept_ms,
                    "topics": [{"name": place.name, "partitions": [part]}],
                }
                await self._until_told(group, OFFSET_COMMIT, fields, version=OFFSET_COMMIT_WITH_RETENTION)
            self._groups[group] = offset

    async def look(self) -> None:
        """For when all is well."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + GONE_WITHIN_S
        for group, offset in self._groups.items():
            for place, kept_ms in self._kept_ms.items():
                due = offset if kept_ms == LONG_MS else -1
                while (told := await self._committed(group, place)) != due:
                    if loop.time() > until_s:
                        self._history.refused.append(
                            f"{place}: {group} committed {offset} for {kept_ms} ms and has {told}"
                        )
                        break
                    await asyncio.sleep(1.0)

    async def _committed(self, group: str, place: Place) -> int:
        topics = [{"name": place.name, "partition_indexes": [place.partition]}]
        answer = await self._until_told(group, OFFSET_FETCH, {"groups": [{"group_id": group, "topics": topics}]})
        return int(answer.groups[0].topics[0].partitions[0].committed_offset)

    async def _until_told(
        self, group: str, api_key: int, fields: dict[str, Any], *, version: int | None = None
    ) -> Message:
        client, attempt = self._client, 0
        while True:
            try:
                found = await (await client.connection()).send(
                    FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": [group]}
                )
                at = found.coordinators[0]
                if not at.error_code:
                    answer = await (await client.connection((at.host, at.port))).send(api_key, fields, version=version)
                    codes = {code for code in codes_of(answer) if code}
                    if not codes:
                        return answer
                    if wrong := codes - RETRIABLE - {NOT_COORDINATOR, THROTTLING_QUOTA_EXCEEDED}:
                        self._history.refused.append(f"{group}: API {api_key} was told {sorted(wrong)}")
            except ConnectionLost:
                pass
            attempt += 1
            await client.back_off(attempt)
