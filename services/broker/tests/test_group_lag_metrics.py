"""Which lags a coordinator's broker tells: of owners that answer, of some that do not, of lanes, as finely as it is
told to.
"""

import asyncio
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from bmq.errors import NotOwner, NotReady
from bmq.naming.lanes import stored_group
from bmq.roles.owner import Position, Unread
from bmq.values import TopicId, TopicPartition
from bmq_broker import lag
from bmq_broker.lag import ANSWER_WITHIN_S, FRESH_S, KEPT_S, GroupLags
from bmq_sim.loop import on_virtual_time

ORDERS, EVENTS = TopicId(UUID(int=1)), TopicId(UUID(int=2))
NAMES = {"orders": ORDERS, "events": EVENTS, "dev:orders": TopicId(UUID(int=3))}


class Brokers:
    """Two owners: of even partitions and of odd ones. Behind each offset there are 100 - offset records, as old in
    seconds.
    """

    def __init__(self) -> None:
        self.owners = [Owner(), Owner()]

    def owner_for(self, tp: TopicPartition) -> "Owner":
        if tp.partition > 9:
            raise NotOwner("nobody has it")
        return self.owners[tp.partition % 2]


class Owner:
    def __init__(self) -> None:
        self.calls: list[int] = []
        self.refuses = False
        self.hangs = False

    async def unread(self, positions: Sequence[Position]) -> list[Unread | None]:
        self.calls.append(len(positions))
        if self.hangs:
            await asyncio.sleep(3600)
        if self.refuses:
            raise NotReady("starting")
        return [
            None if one.tp.topic_id == EVENTS else Unread(records=100 - one.offset, seconds=float(100 - one.offset))
            for one in positions
        ]


class Coordinators:
    """One coordinator."""

    def __init__(self, offsets: dict[tuple[str, str, int], int]) -> None:
        self.offsets = offsets

    def group_offsets(self, at_once: int) -> Iterator[dict[tuple[str, str, int], int]]:
        for first in range(0, len(self.offsets), at_once):
            yield dict(list(self.offsets.items())[first : first + at_once])

    def group_states(self, at_once: int) -> Iterator[dict[str, int]]:
        assert at_once > 0
        yield {"Stable": 1, "Empty": 1}
        yield {"Empty": 1}


def lags(brokers: Brokers, offsets: dict[tuple[str, str, int], int], granularity: Any) -> GroupLags:
    metadata: Any = SimpleNamespace(image=SimpleNamespace(topic_ids=NAMES))
    coordinators: Any = Coordinators(offsets)
    owner_for: Any = brokers.owner_for
    return GroupLags(coordinators=coordinators, metadata=metadata, owner_for=owner_for, granularity=granularity)


def told(found: GroupLags, name: str = "bmq_group_lag_records") -> dict[tuple[str, ...], float]:
    """By the labels' values."""
    [family] = [one for one in found.collect() if one.name == name]
    return {tuple(sample.labels.values()): sample.value for sample in family.samples}


OFFSETS = {("g", "orders", 0): 90, ("g", "orders", 1): 70, ("h", "orders", 0): 100}


@pytest.mark.parametrize(
    ("granularity", "records", "seconds"),
    [
        ("partition", {("", "g", "orders", "0"): 10, ("", "g", "orders", "1"): 30, ("", "h", "orders", "0"): 0}, None),
        ("topic", {("", "g", "orders"): 40, ("", "h", "orders"): 0}, {("", "g", "orders"): 30, ("", "h", "orders"): 0}),
        ("group", {("", "g"): 40, ("", "h"): 0}, {("", "g"): 30, ("", "h"): 0}),
    ],
)
@on_virtual_time
async def test_records_add_up_and_of_seconds_the_most_counts(granularity: str, records: Any, seconds: Any) -> None:
    found = lags(Brokers(), OFFSETS, granularity)
    assert list(found.collect()) == [], "nobody has looked yet"
    await found.refresh()
    assert told(found) == records
    assert told(found, "bmq_group_lag_seconds") == (seconds or records)
    assert told(found, "bmq_groups") == {("Stable",): 1, ("Empty",): 2}


@on_virtual_time
async def test_with_metrics_of_lags_off_nobody_is_asked() -> None:
    brokers = Brokers()
    found = lags(brokers, OFFSETS, "off")
    await found.refresh()
    assert list(found.collect()) == []
    assert [owner.calls for owner in brokers.owners] == [[], []]


@on_virtual_time
async def test_each_owner_is_asked_once_for_all_and_not_again_within_a_moment() -> None:
    brokers = Brokers()
    found = lags(brokers, OFFSETS, "group")
    await asyncio.gather(*(found.refresh() for _ in range(5)))
    assert [owner.calls for owner in brokers.owners] == [[2], [1]]
    await asyncio.sleep(FRESH_S)
    await found.refresh()
    assert [owner.calls for owner in brokers.owners] == [[2, 2], [1, 1]]


@on_virtual_time
async def test_what_an_owner_does_not_tell_stays_as_it_was_and_grows_older_for_a_minute() -> None:
    brokers = Brokers()
    found = lags(brokers, OFFSETS, "partition")
    await found.refresh()
    brokers.owners[0].refuses = True
    brokers.owners[1].hangs = True
    began = asyncio.get_running_loop().time()
    await asyncio.sleep(10)
    await found.refresh()
    took_s = asyncio.get_running_loop().time() - began
    assert took_s == pytest.approx(10 + ANSWER_WITHIN_S)
    assert told(found) == {("", "g", "orders", "0"): 10, ("", "g", "orders", "1"): 30, ("", "h", "orders", "0"): 0}
    seconds = told(found, "bmq_group_lag_seconds")
    assert seconds["", "g", "orders", "1"] == pytest.approx(30 + took_s)
    assert seconds["", "h", "orders", "0"] == 0
    brokers.owners[1].hangs = False
    await asyncio.sleep(KEPT_S)
    await found.refresh()
    assert told(found) == {("", "g", "orders", "1"): 30}


@on_virtual_time
async def test_partitions_without_an_owner_deleted_topics_and_what_is_not_open_are_left_out() -> None:
    found = lags(
        Brokers(),
        {("g", "orders", 10): 1, ("g", "gone", 0): 1, ("g", "events", 0): 1, ("g", "orders", 2): 95},
        "partition",
    )
    await found.refresh()
    assert told(found) == {("", "g", "orders", "2"): 5}


@on_virtual_time
async def test_a_lanes_group_is_told_under_its_own_name_with_the_lane() -> None:
    of_lane = stored_group("dev", 7, "g")
    found = lags(
        Brokers(), {("g", "orders", 0): 90, (of_lane, "dev:orders", 0): 80, (of_lane, "orders", 0): 60}, "partition"
    )
    await found.refresh()
    assert told(found) == {("", "g", "orders", "0"): 10, ("dev", "g", "orders", "0"): 60}, (
        "its own topic's and the base's"
    )


@on_virtual_time
async def test_offsets_beyond_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag, "POSITIONS_MAX", 2)
    monkeypatch.setattr(lag, "POSITIONS_AT_ONCE", 1)
    brokers = Brokers()
    found = lags(brokers, OFFSETS, "partition")
    await found.refresh()
    assert len(told(found)) == 2
    assert told(found, "bmq_group_lag_left_out") == {(): 1}
    assert [owner.calls for owner in brokers.owners] == [[1], [1]]


@on_virtual_time
async def test_groups_with_very_long_names_are_counted_only() -> None:
    found = lags(
        Brokers(), {("g", "orders", 0): 90, ("n" * 251, "orders", 0): 80, ("n" * 250, "orders", 0): 70}, "partition"
    )
    await found.refresh()
    assert told(found) == {("", "g", "orders", "0"): 10, ("", "n" * 250, "orders", "0"): 30}
    assert told(found, "bmq_group_lag_left_out") == {(): 1}
