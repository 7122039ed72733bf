"""Producers for each manner: how many, and what they hold together."""

import pytest
from test_channel_spool import in_a_loop
from tests.waiting import until_async

from bmq_databus.channels.channel import Manner
from bmq_databus.errors import QueueFull
from bmq_databus.producing.outcomes import may_be_written, of_all, sent
from bmq_databus.producing.sender import Sender
from bmq_databus.producing.senders import LANES_MAX, Senders
from bmq_databus.producing.settings import QUEUE_KIB, cluster_settings, producer_settings, with_manner
from bmq_databus.spool.channel_spool import bytes_of
from bmq_databus.spool.frames import Spooled

SETTINGS = producer_settings(cluster_settings("127.0.0.1:1"), timeout_ms=0)


def nobody(*_: object) -> None:
    """Is told of it."""


def fill(sender: Sender, one: Spooled) -> int:
    """How many are under way until there is no more room."""
    count = 0
    try:
        while count < 100_000:
            sender.produce(one, nobody)
            count += 1
    except QueueFull:
        pass
    return count


@in_a_loop
async def test_channels_of_one_manner_share_a_producer_and_others_have_their_own() -> None:
    zstd = Manner(compression="zstd", linger_ms=50, batch_bytes=5_000)
    senders = Senders(SETTINGS, [Manner(), Manner(), zstd], broken=nobody)
    try:
        assert senders.of(Manner()) is senders.of(Manner(linger_ms=5))
        assert senders.of(zstd) is not senders.of(Manner())
    finally:
        senders.purge()
        await senders.close(patience_s=5)


@in_a_loop
async def test_what_producers_hold_is_shared_out_and_one_message_is_always_taken() -> None:
    manners = [Manner(linger_ms=number) for number in range(4)]
    senders = Senders(SETTINGS, manners, broken=nobody)
    one = Spooled("t", -1, None, b"x" * 100_000, (), 1, 1)
    large = Spooled("t", -1, None, b"x" * (12 << 20), (), 1, 1)
    try:
        counts = [fill(senders.of(manner), one) for manner in manners[:3]]
        assert counts == [(QUEUE_KIB * 1024 // 4) // bytes_of(one)] * 3
        assert fill(senders.of(manners[3]), large) == 1
    finally:
        senders.purge()
        assert await senders.close(patience_s=5) == 0


@in_a_loop
async def test_room_comes_back_with_the_reports() -> None:
    senders = Senders(SETTINGS, [Manner(linger_ms=number) for number in range(8)], broken=nobody)
    one = Spooled("t", -1, None, b"x" * 1_000_000, (), 1, 1)
    sender = senders.of(Manner(linger_ms=0))
    try:
        assert fill(sender, one) == 4
        sender.purge()
        await until_async(lambda: not sender.unsent, "all reports", every_s=0)
        await until_async(lambda: fill(sender, one) > 0, "room")
    finally:
        senders.purge()
        await senders.close(patience_s=5)


@in_a_loop
async def test_there_are_as_many_producers_as_there_may_be() -> None:
    senders = Senders(SETTINGS, [Manner()], broken=nobody)
    try:
        for number in range(10, 17):
            senders.of(Manner(linger_ms=number))
        with pytest.raises(QueueFull, match="8 manners"):
            senders.of(Manner(linger_ms=99))
    finally:
        await senders.close(patience_s=5)


@in_a_loop
async def test_lanes_have_producers_of_their_own_of_which_idle_ones_make_room() -> None:
    senders = Senders(SETTINGS, [Manner()], broken=nobody)
    in_lane = [Spooled("t", -1, None, b"x", (), 1, 1, f"lane-{number}") for number in range(LANES_MAX + 1)]
    try:
        for one in in_lane[:LANES_MAX]:
            senders.produce(Manner(), one, nobody)
        assert senders.lanes == LANES_MAX
        with pytest.raises(QueueFull, match="16 lanes are under way"):
            senders.produce(Manner(), in_lane[-1], nobody)
        senders.close_idle(0.0)
        assert senders.lanes == LANES_MAX, "what is under way is not given up"
        senders.purge()
        await until_async(lambda: not any(one.unsent for one in senders._all()), "reports")
        senders.produce(Manner(), in_lane[-1], nobody)
        assert senders.lanes == LANES_MAX
        senders.purge()
        await until_async(lambda: not any(one.unsent for one in senders._all()), "reports")
        senders.close_idle(60.0)
        assert senders.lanes == LANES_MAX
        senders.close_idle(0.0)
        assert senders.lanes == 0
    finally:
        senders.purge()
        await senders.close(patience_s=5)


def test_a_message_is_written_where_all_targets_have_it_and_may_be_where_one_has() -> None:
    timed_out = {"status": 503, "error": "no"}
    both = of_all([("a", sent(0, 1)), ("b", sent(2, 3))])
    assert (both["status"], both["offset"], both["targets"][1]) == (200, 1, {"target": "b", **sent(2, 3)})
    one = of_all([("a", sent(0, 1)), ("b", timed_out)])
    assert (one["status"], one["error"]) == (503, "b: no")
    assert may_be_written(one) and not may_be_written(of_all([("a", timed_out), ("b", timed_out)]))


def test_a_manner_of_another_cluster_has_its_addresses() -> None:
    assert with_manner(SETTINGS, Manner(bootstrap_servers="other:1"))["bootstrap.servers"] == "other:1"


def test_a_lane_is_in_the_name_of_its_client() -> None:
    assert with_manner(SETTINGS, Manner(lane="dev"))["client.id"] == "bmq-databus,lane=dev"
    assert with_manner(SETTINGS, Manner())["client.id"] == "bmq-databus"
