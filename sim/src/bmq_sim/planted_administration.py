"""Bugs to plant in what administrators ask for: retention, deletions, more partitions, topics and lanes made again,
static members.

As in bmq_sim.planted: each patches the real function and is what a hurried change would do.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Final
from unittest.mock import patch

from bmq.clocks import clock_guard, store_clock
from bmq.config.topic_config import FIRST_OFFSET
from bmq.errors import BmqError, StoreError
from bmq.storage import flatlog, manifest
from bmq.values import Nonce, Offset
from bmq_broker import broker
from bmq_broker.coordinators.groups import membership, service
from bmq_broker.ownership import reconfiguring
from bmq_broker.partitions import partition as partitions
from bmq_broker.segments import retention
from bmq_controller.machine import lanes, topics

Plant = Callable[[], AbstractContextManager[Any]]


def _retention_ignores_snapshot() -> AbstractContextManager[Any]:
    """A coordinator's log starts behind its old entries, whether or not there is a snapshot of what they said."""

    real = retention.Retention._log_start_after

    async def log_start_after(self: retention.Retention, partition: partitions.Partition) -> Offset:
        offset = await real(self, partition)
        if not partition.config.delete:
            for entry in partition.manifest.entries:
                if entry.max_timestamp_ms < self._clock.now_ms() - 1_000:
                    offset = max(offset, Offset(entry.last_offset + 1))
        return offset

    stack = ExitStack()
    stack.enter_context(
        patch.object(retention.Retention, "_log_start_after", autospec=True, side_effect=log_start_after)
    )
    stack.enter_context(patch.object(retention, "_loads_from", new=lambda partition: None))
    return stack


def _retention_takes_one_more() -> AbstractContextManager[Any]:
    """By size the segment goes, too, that reaches below the limit."""
    real = manifest.retained_among

    def retained_among(parts: Sequence[Any], *, before_ms: int | None, excess_bytes: int | None) -> int:
        kept = real(parts, before_ms=before_ms, excess_bytes=excess_bytes)
        return min(kept + 1, len(parts)) if excess_bytes is not None and excess_bytes > 0 else kept

    return patch("bmq.storage.manifest.retained_among", new=retained_among)


def _deleted_before_durable() -> AbstractContextManager[Any]:
    """DeleteRecords is answered while the manifest that says so is on its way."""
    real = broker.Broker.delete_records
    background: set[asyncio.Task[Any]] = set()

    async def delete_records(self: broker.Broker, tp: Any, before: Offset) -> Offset:
        async def later() -> None:
            await asyncio.sleep(0.5)
            with contextlib.suppress(BmqError):
                await real(self, tp, before)

        background.add(task := asyncio.get_running_loop().create_task(later()))
        task.add_done_callback(background.discard)
        return before

    return patch.object(broker.Broker, "delete_records", autospec=True, side_effect=delete_records)


def _failed_manifest_counts() -> AbstractContextManager[Any]:
    """A manifest version that the store refused, or did not answer, counts as written: what it covers leaves the memory
    and the WAL.
    """
    real = flatlog.FlatLog.append

    async def append(self: flatlog.FlatLog, base: flatlog.Entry, *, epoch: int, payload: bytes) -> flatlog.Entry:
        try:
            return await real(self, base, epoch=epoch, payload=payload)
        except StoreError:
            return flatlog.Entry(
                number=base.number + 1,
                epoch=epoch,
                nonce=Nonce(bytes(16)),
                predecessor=base.nonce,
                claim=False,
                payload=payload,
            )

    return patch.object(flatlog.FlatLog, "append", autospec=True, side_effect=append)


def _remade_topic_keeps_offsets() -> AbstractContextManager[Any]:
    """Committed offsets are found by the topic's name alone, and a deleted topic's stay where another has its name."""

    def fetch(machine: Any, group_id: str, topic: str, partition: int, topic_id: Any) -> Any:
        return machine.durable.offsets.get(group_id, {}).get((topic, partition))

    def topics_deleted(self: service.GroupCoordinatorShard, topics: Any) -> None:
        return None

    stack = ExitStack()
    stack.enter_context(patch("bmq_broker.handlers.k09_offset_fetch.fetch", new=fetch))
    stack.enter_context(
        patch.object(service.GroupCoordinatorShard, "topics_deleted", autospec=True, side_effect=topics_deleted)
    )
    return stack


def _static_member_doubled() -> AbstractContextManager[Any]:
    """A static member that comes back without its id is one more member."""

    def replace_static(turn: Any, request: Any, ticket: Any) -> None:
        turn.group.static.pop(request.instance_id)
        membership._add(turn, request, request.fresh_id, ticket)

    return patch.object(membership, "_replace_static", new=replace_static)


def _growing_places_all_anew() -> AbstractContextManager[Any]:
    """CreatePartitions places the whole topic, so that partitions change their owner without a hand-over."""
    real = topics.place

    def place(placement: Any, topic_id: Any, indexes: Sequence[int], created_epoch: Any, *, wanted: Any = None) -> Any:
        return real(placement, topic_id, range(indexes[-1] + 1), created_epoch, wanted=wanted)

    return patch.object(topics, "place", new=place)


def _lane_topics_outlive_it() -> AbstractContextManager[Any]:
    """A lane is deleted and its topics are forgotten."""

    def topics_of(image: Any, names: Collection[str]) -> list[Any]:
        return []

    return patch.object(lanes, "topics_of", new=topics_of)


def _lane_goes_on_in_the_base() -> AbstractContextManager[Any]:
    """The topic of a lane that read the base's begins at 0, where its clients take the base's offsets for its own."""
    real = lanes.overlay_configs

    def overlay_configs(lane: Any, base: Any, given: Any) -> dict[str, str]:
        return {name: value for name, value in real(lane, base, given).items() if name != FIRST_OFFSET}

    return patch.object(topics, "overlay_configs", new=overlay_configs)


def _trust_outlives_a_comparison() -> AbstractContextManager[Any]:
    """What the last comparison said of the clock holds until the next one."""

    def trusted_now_ms(self: clock_guard.ClockGuard) -> int | None:
        return self._clock.now_ms() if self._skew_ms is not None and abs(self._skew_ms) <= self._skew_ms_max else None

    return patch.object(clock_guard.ClockGuard, "trusted_now_ms", autospec=True, side_effect=trusted_now_ms)


def _compared_through_a_jump() -> AbstractContextManager[Any]:
    """A comparison counts, though the clock jumped while it lasted."""
    return patch.object(store_clock, "JUMP_MS_MAX", new=2**60)


def _open_ones_keep_the_defaults() -> AbstractContextManager[Any]:
    """What is open keeps what it opened with, where a default of the cluster has changed since."""
    return patch.object(reconfiguring.Reconfiguring, "begin", autospec=True, side_effect=lambda self: None)


PLANTED_ADMINISTRATION: Final[Mapping[str, Plant]] = {
    "retention-ignores-snapshot": _retention_ignores_snapshot,
    "retention-takes-one-more": _retention_takes_one_more,
    "deleted-before-durable": _deleted_before_durable,
    "failed-manifest-counts": _failed_manifest_counts,
    "remade-topic-keeps-offsets": _remade_topic_keeps_offsets,
    "static-member-doubled": _static_member_doubled,
    "growing-places-all-anew": _growing_places_all_anew,
    "lane-topics-outlive-it": _lane_topics_outlive_it,
    "trust-outlives-a-comparison": _trust_outlives_a_comparison,
    "compared-through-a-jump": _compared_through_a_jump,
    "lane-goes-on-in-the-base": _lane_goes_on_in_the_base,
    "open-ones-keep-the-defaults": _open_ones_keep_the_defaults,
}
