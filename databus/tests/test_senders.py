"""Producers for each manner: how many, and what they hold together."""

import os
from dataclasses import replace

import msgspec
import pytest
from confluent_kafka import KafkaError
from test_channel_spool import in_a_loop
from tests.waiting import until_async

from bmq_databus.channels.channel import Manner
from bmq_databus.channels.topics import MANNER
from bmq_databus.errors import QueueFull
from bmq_databus.producing import sender as sender_module
from bmq_databus.producing.outcomes import may_be_written, of_all, sent
from bmq_databus.producing.producer import Producing, Reports
from bmq_databus.producing.sender import Sender
from bmq_databus.producing.senders import LANES_CLOSING_MAX, LANES_MAX, Senders
from bmq_databus.producing.settings import QUEUE_KIB, cluster_settings, producer_settings, with_manner
from bmq_databus.spool.frames import Spooled
from bmq_databus.spool.sizes import bytes_of
from bmq_resources.channel_sets import MANNERS_MAX

SETTINGS = producer_settings(cluster_settings("127.0.0.1:1"), timeout_ms=0)


def nobody(*_: object) -> None:
    """Is told of it."""


def fill(sender: Sender, one: Spooled) -> int:
    """How many are under way until there is no more room."""
    count = 0
    try:
        while count < 100_000:
            sender.produce([one], nobody, first=0, end=1)
            count += 1
    except QueueFull:
        pass
    return count


@in_a_loop
async def test_channels_of_one_manner_share_a_producer_and_others_have_their_own() -> None:
    zstd = Manner(compression="zstd", linger_ms=50, batch_bytes=5_000)
    senders = Senders(SETTINGS, [Manner(), Manner(), zstd], broken=nobody)
    try:
        assert senders.of(Manner()) is senders.of(Manner(linger_ms=Manner().linger_ms))
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
async def test_many_lanes_in_turn_have_no_more_threads_than_few_and_wait_for_those_that_close() -> None:
    senders = Senders(SETTINGS, [Manner()], broken=nobody)
    before = threads()
    try:
        for number in range(45):
            lane = Manner(lane=f"lane-{number}")

            def is_there(lane: Manner = lane) -> bool:
                try:
                    return senders.of(lane) is not None
                except QueueFull:
                    return False

            await until_async(is_there, "a producer for the lane", every_s=0.001)
            assert threads() <= before + 3 * (LANES_MAX + LANES_CLOSING_MAX) + 20, "librdkafka's, and some of our own"
    finally:
        await senders.close(patience_s=0)
    await until_async(lambda: threads() <= before + 20, "the threads of all to end")


@in_a_loop
async def test_a_lane_gets_no_producer_where_the_system_has_none_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    senders = Senders(SETTINGS, [Manner()], broken=nobody)

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("Failed to initialize thread local storage")

    try:
        there = senders.of(Manner(lane="there"))
        with monkeypatch.context() as patched:
            patched.setattr(sender_module, "Producing", fails)
            with pytest.raises(QueueFull, match="lane another gets no producer of its own for now: Failed to init"):
                senders.of(Manner(lane="another"))
            assert senders.of(Manner(lane="there")) is there
        assert senders.of(Manner(lane="another")) is not there
    finally:
        await senders.close(patience_s=0)


@in_a_loop
async def test_a_lanes_producer_that_failed_for_good_makes_way_for_another_once_it_has_told_of_its_messages() -> None:
    told: list[str] = []
    senders = Senders(SETTINGS, [Manner()], broken=told.append)
    one = Spooled("t", -1, None, b"x", (), 1, 1, "dev")
    try:
        senders.produce(Manner(), [one], nobody, first=0, end=1)
        first = senders.of(Manner(lane="dev"))
        first._together._failed(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED, "no such lane", fatal=True))
        with pytest.raises(QueueFull, match="has yet to tell of its messages"):
            senders.of(Manner(lane="dev"))
        first.purge()
        await until_async(lambda: not first.unsent, "the report")
        assert senders.of(Manner(lane="dev")) is not first
        assert not told, "nobody else is concerned"
    finally:
        senders.purge()
        await senders.close(patience_s=5)


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


@in_a_loop
async def test_lanes_have_producers_of_their_own_of_which_idle_ones_make_room() -> None:
    senders = Senders(SETTINGS, [Manner()], broken=nobody)
    in_lane = [Spooled("t", -1, None, b"x", (), 1, 1, f"lane-{number}") for number in range(LANES_MAX + 1)]
    try:
        for one in in_lane[:LANES_MAX]:
            senders.produce(Manner(), [one], nobody, first=0, end=1)
        assert senders.lanes == LANES_MAX
        with pytest.raises(QueueFull, match="16 lanes are under way"):
            senders.produce(Manner(), in_lane, nobody, first=LANES_MAX, end=LANES_MAX + 1)
        senders.close_idle(0.0)
        assert senders.lanes == LANES_MAX, "what is under way is not given up"
        senders.purge()
        await until_async(lambda: not any(one.unsent for one in senders._all()), "reports")
        senders.produce(Manner(), in_lane, nobody, first=LANES_MAX, end=LANES_MAX + 1)
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


@in_a_loop
async def test_producers_of_topics_by_their_names_are_made_anew_unless_they_have_something_under_way() -> None:
    senders = Senders(SETTINGS, [Manner(), MANNER], broken=nobody)
    one = Spooled("t", -1, None, b"x", (), 1, 1)
    try:
        declared, by_name = senders.of(Manner()), senders.of(MANNER)
        declared.produce([one], nobody, first=0, end=1)
        await until_async(senders.renew, "what librdkafka says of the cluster to be heard", 10)
        assert senders.of(Manner()) is declared and senders.of(MANNER) is not by_name
        senders.produce(MANNER, [one], nobody, first=0, end=1)
        assert not senders.renew()
        of_lane = msgspec.structs.replace(one, lane="dev")
        senders.purge()
        await until_async(lambda: not senders.of(MANNER).unsent, "what was purged to be reported", 10)
        senders.produce(MANNER, [of_lane], nobody, first=0, end=1)
        assert not senders.renew()
        senders.purge()
        lane = replace(MANNER, lane="dev")
        await until_async(lambda: not senders.of(lane).unsent, "what was purged to be reported", 10)
        await until_async(senders.renew, "what librdkafka says of the cluster to be heard", 10)
        assert senders.lanes == 0
    finally:
        senders.purge()
        await senders.close(patience_s=5)


@in_a_loop
async def test_topics_by_their_names_take_no_manner_from_channels() -> None:
    senders = Senders(SETTINGS, [MANNER], broken=nobody)
    try:
        for number in range(MANNERS_MAX):
            senders.of(Manner(linger_ms=number))
        with pytest.raises(QueueFull):
            senders.of(Manner(linger_ms=MANNERS_MAX))
    finally:
        await senders.close(patience_s=5)


@in_a_loop
async def test_of_many_messages_as_many_are_taken_as_there_is_room_for_and_as_go_the_same_way() -> None:
    senders = Senders(SETTINGS, [Manner(), Manner(linger_ms=7)], broken=nobody)
    one = Spooled("t", -1, None, b"x" * 1_000_000, (), 1, 1)
    in_lane = msgspec.structs.replace(one, lane="dev")
    room = QUEUE_KIB * 1024 // 2 // bytes_of(one)
    places: list[int] = []

    def reports(place: int, *_: object) -> None:
        places.append(place)

    try:
        assert senders.produce(Manner(), [one, one, in_lane, one], reports, first=1, end=4) == 2
        assert senders.produce(Manner(), [one, one, in_lane, one], reports, first=2, end=4) == 3
        many = [one] * 50
        assert senders.produce(Manner(), many, reports, first=10, end=50) == 10 + room - 1
        with pytest.raises(QueueFull):
            senders.produce(Manner(), many, reports, first=10 + room - 1, end=50)
        senders.purge()
        await until_async(lambda: len(places) == room + 1, "a report for each that was taken", every_s=0)
        assert sorted(places) == sorted([1, 2, *range(10, 10 + room - 1)])
        assert senders.produce(Manner(), many, reports, first=0, end=50) == room, "and room for as many again"
    finally:
        senders.purge()
        await senders.close(patience_s=5)


@in_a_loop
async def test_a_queue_that_is_full_in_the_middle_of_many_has_taken_those_before() -> None:
    producing = Producing({**SETTINGS, "queue.buffering.max.messages": 5}, broken=nobody)
    messages = [Spooled("t", -1, None, b"%d" % n, (), 1, 1) for n in range(8)]
    places: list[int] = []

    def reports(place: int, *_: object) -> None:
        places.append(place)

    try:
        assert producing.produce(messages, reports, first=1, end=8) == 6
        with pytest.raises(QueueFull):
            producing.produce(messages, reports, first=6, end=8)
        producing.purge()
        await until_async(lambda: len(places) == 5, "a report for each that was taken", every_s=0)
        assert sorted(places) == [1, 2, 3, 4, 5]
    finally:
        await producing.close(patience_s=5)


@in_a_loop
async def test_who_is_told_first_of_an_error_may_do_something_else_with_the_message() -> None:
    """Which messages of a refused batch are sent again by themselves."""
    kept: list[tuple[Spooled, int]] = []
    told: list[int] = []

    def refused(message: Spooled, reports: Reports, place: int, error: KafkaError) -> bool:
        kept.append((message, place))
        return place != 1

    producing = Producing(SETTINGS, broken=nobody, refused=refused)
    messages = [Spooled("t", -1, None, b"%d" % n, (), 1, 1) for n in range(3)]
    try:
        producing.produce(messages, lambda place, *_: told.append(place), first=0, end=3)
        producing.purge()
        await until_async(lambda: len(kept) == 3, "all errors", every_s=0)
        assert sorted(kept, key=lambda one: one[1]) == list(zip(messages, range(3), strict=True))
        assert told == [1]
    finally:
        await producing.close(patience_s=5)
