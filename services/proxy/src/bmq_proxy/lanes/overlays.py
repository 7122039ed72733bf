"""Making a lane's topics: at the first write to a name that the base has, and nobody in the lane has written to yet."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import structlog

from bmq.config.limits import Limits
from bmq.errors import BmqError, QuotaExceeded, TopicExists
from bmq.fairness.grouping import in_weighed_groups
from bmq.fairness.log_limit import RateLimited
from bmq.metadata.image import Image
from bmq.naming.lanes import overlay_name
from bmq.roles.controller import Controller, Metadata, NewTopic
from bmq.storage.durable import cancelled
from bmq_proxy.creation import PIECE_PARTITIONS, PIECE_TOPICS, CreationQuota, texts_count
from bmq_proxy.images import image_with
from bmq_proxy.lanes.controller import LaneController

SHOWN_WITHIN_S: Final = 10.0
COMPLAIN_EVERY_S: Final = 10.0

_log = structlog.get_logger("bmq.proxy.lanes")


class Overlays:
    """One lane's. Whoever writes to the same name at the same time waits for the same creation.

    What a write makes counts as what CreateTopics makes: a request of a few bytes may name topics with very many
    partitions.
    """

    def __init__(
        self,
        controller: Controller,
        real: Metadata,
        lane: str,
        tasks: set[asyncio.Task[Any]],
        *,
        quota: CreationQuota,
        limits: Limits,
    ) -> None:
        """`controller` is the lane's, `real` the node's metadata as it is. `tasks`: what is under way, for who ends
        it.
        """
        self._controller = controller
        self._real = real
        self._lane = lane
        self._tasks = tasks
        self._quota = quota
        self._limits = limits
        self._making: dict[str, asyncio.Task[dict[str, BmqError]]] = {}
        self._one_by_one = asyncio.Lock()
        self._complaints = RateLimited(interval_s=COMPLAIN_EVERY_S)

    async def make(self, names: Collection[str], address: str) -> Mapping[str, BmqError]:
        """Returns when they are there, or cannot be had now, or soon: whoever then misses them tells its client, which
        tries again. What is known of why, by name.

        `address` is the client's: what is made counts for it.
        """
        refused: dict[str, BmqError] = {}
        wanted = self._admitted([name for name in dict.fromkeys(names) if name not in self._making], address, refused)
        for piece in in_weighed_groups(wanted, self._weight, count_max=PIECE_TOPICS, weight_max=PIECE_PARTITIONS):
            task = asyncio.get_running_loop().create_task(
                self._make(piece), name=f"make {piece[0]} in lane {self._lane}"
            )
            self._making.update(dict.fromkeys(piece, task))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(lambda _, piece=piece: self._forget(piece))  # type: ignore[misc]
        waited = {self._making[name] for name in names if name in self._making}
        if waited:
            done, _ = await asyncio.wait(waited, timeout=SHOWN_WITHIN_S)
            for task in done:
                if not task.cancelled() and task.exception() is None:
                    refused.update(task.result())
        return refused

    def _admitted(self, names: Sequence[str], address: str, refused: dict[str, BmqError]) -> list[str]:
        """As many as one CreateTopics might make, but one at least, and as the address has left. The others are made
        when their clients try again.
        """
        admitted: list[str] = []
        left = self._limits.create_partitions_max
        for name in names[: self._limits.create_topics_max]:
            weight = self._weight(name)
            if admitted and weight > left:
                break
            try:
                self._quota.take(address, weight, asyncio.get_running_loop().time())
            except QuotaExceeded as error:
                self._complain(name, error)
                refused[name] = error
                break
            left -= weight
            admitted.append(name)
        return admitted

    def _weight(self, name: str) -> int:
        """How many partitions it will have, and what its configuration counts beside them: what the one beneath has."""
        image = self._real.image
        lane = image.lanes.get(self._lane)
        beneath = None if lane is None else image.beneath(lane, name)
        return 1 if beneath is None else len(beneath.partitions) + texts_count(beneath.configs.values())

    async def _make(self, names: Sequence[str]) -> dict[str, BmqError]:
        async with self._one_by_one:  # between two pieces the controller hears others
            try:
                results = await self._controller.create_topics([NewTopic(name=name) for name in names])
            except BmqError as error:
                self._complain(names[0], error)
                return dict.fromkeys(names, error)
            made: list[str] = []
            refused: dict[str, BmqError] = {}
            for name, result in zip(names, results, strict=True):
                if result.error is None or isinstance(result.error, TopicExists):
                    made.append(overlay_name(self._lane, name))
                else:
                    self._complain(name, result.error)
                    refused[name] = result.error

        def shown(image: Image) -> bool | None:
            return all(stored in image.topic_ids for stored in made) or None

        await image_with(self._real, shown, SHOWN_WITHIN_S)
        return refused

    def _forget(self, names: Sequence[str]) -> None:
        for name in names:
            del self._making[name]

    def _complain(self, name: str, error: BmqError) -> None:
        left_out = self._complaints.due(type(error).__name__, now=asyncio.get_running_loop().time())
        if left_out is not None:
            _log.warning("topic of a lane not made", lane=self._lane, topic=name, error=str(error), left_out=left_out)


class LaneTopics:
    """Makes topics of any lane, for one proxy."""

    def __init__(self, controller: Controller, real: Metadata, *, quota: CreationQuota, limits: Limits) -> None:
        """`controller` and `real` are the node's own."""
        self._controller = controller
        self._real = real
        self._quota = quota
        self._limits = limits
        self._tasks: set[asyncio.Task[Any]] = set()
        self._of: dict[str, Overlays] = {}

    async def make(self, lane: str, names: Collection[str], address: str) -> Mapping[str, BmqError]:
        """As `Overlays.make`."""
        overlays = self._of.get(lane)
        if overlays is None:
            lanes = self._real.image.lanes
            self._of = {name: one for name, one in self._of.items() if name in lanes}
            controller = LaneController(self._controller, lane)
            overlays = self._of[lane] = Overlays(
                controller, self._real, lane, self._tasks, quota=self._quota, limits=self._limits
            )
        return await overlays.make(names, address)

    async def close(self) -> None:
        """Ends what is under way."""
        await cancelled(self._tasks)
