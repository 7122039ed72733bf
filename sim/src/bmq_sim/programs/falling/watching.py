"""Somebody who asks, now and then, who handles what is written to the topic, and what waits. Changes nothing."""

from typing import Any, Final

from bmq_sim.client import SimClient
from bmq_sim.history import History
from bmq_sim.programs.falling.ledger import LANE, PARENT, PARTITIONS, TOPIC, Ledger
from bmq_sim.rest import Rest

OF_ALL: Final = f"/v1/routes/{TOPIC}"


class Watcher:
    """What it is told of one turn has to agree, whichever node says it."""

    def __init__(self, client: SimClient, history: History, rest: Rest, ledger: Ledger) -> None:
        self._client = client
        self._history = history
        self._rest = rest
        self._ledger = ledger
        self._pause_s = client.rng.choice((2.0, 8.0))
        self._begins: dict[tuple[int, int], tuple[int, str]] = {}
        """By partition and turn: from which offset on, and who handles it."""
        self._got = [(0, 0)] * PARTITIONS
        """By partition: the last turn of which that was said, and what the base gets next."""

    async def run(self) -> None:
        """Until its client is stopped."""
        rng = self._client.rng
        while not self._client.stopped:
            await self._client.rest(self._pause_s * rng.random())
            match rng.choice(("all", "some", "lane", "lane", "partition", "parent", "nobody")):
                case "all":
                    self._check_all((await self._ask(OF_ALL)).get("items", []))
                case "some":
                    await self._ask(f"{OF_ALL}?limit=1")
                case "lane":
                    self._check_lane((await self._ask(_of(LANE))).get("items", []))
                case "partition":
                    one = f"{_of(LANE)}?partition={rng.randrange(PARTITIONS + 1)}"
                    self._check_lane((await self._ask(one)).get("items", []))
                case "parent":
                    await self._ask(_of(PARENT))
                case _:
                    await self._ask(f"/v1/routes/{LANE}:{TOPIC}")

    async def _ask(self, path: str) -> dict[str, Any]:
        """Nothing where there is no such lane, topic or partition."""
        answer = await self._rest.until_told("GET", path, fine=(404,))
        return answer.document if answer.status != 404 else {}

    def _check_all(self, routes: list[dict[str, Any]]) -> None:
        named = [route["lane"] for route in routes]
        if routes and (named[0] or len(set(named)) < len(named)):
            self._history.refused.append(f"routes of {TOPIC} are told of {named}")

    def _check_lane(self, partitions: list[dict[str, Any]]) -> None:
        for one in partitions:
            partition, turn, since = one["partition"], one["turn"], one["since_offset"]
            told = since, one["handled_by"]
            if self._begins.setdefault((partition, turn), told) != told:
                self._wrong(partition, turn, f"is told as {told}, and as {self._begins[partition, turn]}")
            if self._ledger.base_stays:
                self._check_progress(partition, turn, since if told[1] == "lane" else one["base_next_offset"])

    def _check_progress(self, partition: int, turn: int, next_offset: int | None) -> None:
        """`next_offset`: what the base gets next, or the lane has to itself from there on."""
        at_turn, got = self._got[partition]
        if next_offset is None or turn < at_turn:
            return
        if next_offset < got:
            self._wrong(partition, turn, f"is at {next_offset}, and turn {at_turn} was at {got}")
        self._got[partition] = turn, next_offset

    def _wrong(self, partition: int, turn: int, what: str) -> None:
        self._history.refused.append(f"turn {turn} of {TOPIC}-{partition} {what}")


def _of(lane: str) -> str:
    return f"/v1/lanes/{lane}/routes/{TOPIC}"
