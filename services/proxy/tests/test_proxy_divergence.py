"""Fetch by who says of which epoch the record before its offset was (KIP-595): where the log went on otherwise it is
told so, and gets no records.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from proxy_in_memory import Client, Running, batch, running_proxy

from bmq.errors import BmqError, NotOwner
from bmq.roles.owner import EpochEnd
from bmq.values import LeaderEpoch, Offset, TopicPartition
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message


async def fetched(client: Client, *, offset: int, epoch: int) -> Message:
    one = {
        "partition": 0,
        "fetch_offset": offset,
        "partition_max_bytes": 1 << 20,
        "current_leader_epoch": -1,
        "last_fetched_epoch": epoch,
    }
    request = {
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "topics": [{"topic": "orders", "partitions": [one]}],
    }
    [topic] = (await client.ask(1, 12, request)).responses
    [partition] = topic.partitions
    return partition  # type: ignore[no-any-return]


def with_epochs(ends: dict[int, tuple[int, int] | BmqError], test: Callable[[Client], Awaitable[None]]) -> None:
    """A log of three records of an owner that says of each epoch where it ends: (the largest at or below it, its
    end).
    """

    async def main() -> None:
        async with running_proxy() as proxy:
            client = await _with_three_records(proxy)

            async def epoch_end(tp: TopicPartition, leader_epoch: int, *, current_leader_epoch: int = -1) -> EpochEnd:
                found = ends[leader_epoch]
                if isinstance(found, BmqError):
                    raise found
                return EpochEnd(leader_epoch=LeaderEpoch(found[0]), end_offset=Offset(found[1]))

            proxy.owner.epoch_end = epoch_end  # type: ignore[method-assign]
            await asyncio.wait_for(test(client), 20)

    asyncio.run(main())


async def _with_three_records(proxy: Running) -> Client:
    proxy.metadata.add_topic("orders", 1)
    client = await proxy.connect()
    client.send_produce("orders", {0: batch(b"a", b"b", b"c")})
    await client.receive()
    return client


@pytest.mark.parametrize(
    ("epoch", "offset", "diverging"),
    [
        (3, 1, None),  # of the newest epoch, which goes on
        (3, 3, None),
        (2, 1, None),  # of an earlier one, up to its end
        (2, 2, (2, 1)),  # beyond its end: the record before was another's
        (4, 1, (3, 3)),  # of one that the log never had
        (0, 0, None),  # below the oldest that is known, which begins here
        (0, 1, (0, 0)),  # and beyond its beginning
        (-1, 2, None),  # who does not say
    ],
)
def test_records_go_out_only_where_those_before_them_are_the_same(
    epoch: int, offset: int, diverging: tuple[int, int] | None
) -> None:
    async def test(client: Client) -> None:
        partition = await fetched(client, offset=offset, epoch=epoch)
        assert partition.error_code == 0
        assert partition.high_watermark == 3
        told = partition.diverging_epoch
        assert (None if told is None else (told.epoch, told.end_offset)) == diverging
        assert bool(partition.records) == (diverging is None and offset < 3)

    with_epochs({0: (0, 0), 2: (2, 1), 3: (3, 3), 4: (3, 3)}, test)


def test_records_do_not_go_out_where_the_owner_cannot_say() -> None:
    async def test(client: Client) -> None:
        partition = await fetched(client, offset=1, epoch=2)
        assert partition.error_code == ErrorCode.not_leader_or_follower
        assert not partition.records
        assert partition.diverging_epoch is None

    with_epochs({2: NotOwner("it moved")}, test)


def test_records_do_not_go_out_where_nothing_is_known_of_the_epoch() -> None:
    async def test(client: Client) -> None:
        partition = await fetched(client, offset=1, epoch=9)
        assert partition.error_code == ErrorCode.offset_out_of_range
        assert not partition.records
        assert partition.diverging_epoch is None

    with_epochs({9: (-1, -1)}, test)
