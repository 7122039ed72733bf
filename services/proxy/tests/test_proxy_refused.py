"""What an idempotent producer's client sent behind a batch that was refused is not taken before that batch comes
again.
"""

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest
from one_connection import codes, run
from proxy_in_memory import Client, Running
from tests.waiting import until_async
from told_origin import Origin

from bmq.config.limits import limits_of
from bmq.errors import BatchTooLarge, CorruptBatch, NotReady, PartitionStopped, StoreUnavailable, UnknownTopic
from bmq.values import TopicId, TopicPartition
from bmq.wire.error_codes import ErrorCode
from bmq.wire.records import Record, build_batch
from bmq_proxy.refused import NAME_CHARS_MAX, WAITED_FOR_S, RefusedBatches
from bmq_proxy.settings import ProxySettings

UNKNOWN, AGAIN, OUT_OF_ORDER = (
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.not_leader_or_follower,
    ErrorCode.out_of_order_sequence_number,
)
LAST = 2**31 - 1


def of_producer(sequence: int, *, producer_id: int = 7, epoch: int = 0) -> bytes:
    record = Record(0, 1_700_000_000_000, None, b"%d" % sequence)
    return build_batch([record], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


async def told(client: Client, topic: str, *batches: bytes, partition: int = 0, timeout_ms: int = 5_000) -> list[int]:
    """The codes of batches that were sent one behind the other."""
    sent = [client.send_produce(topic, {partition: one}, timeout_ms=timeout_ms) for one in batches]
    return [code for _ in sent for code in codes((await client.receive())[1])]


def taken(proxy: Running, name: str, partition: int = 0) -> list[bytes]:
    topic = proxy.metadata.image.topic(name)
    assert topic is not None
    return [data[-2:-1] for _, _, data in proxy.owner.log(TopicPartition(topic.topic_id, partition)).batches]


@pytest.mark.usefixtures("both_loops")
def test_a_batch_for_a_topic_that_is_not_known_yet_is_not_overtaken_when_it_is() -> None:
    async def test(proxy: Running, client: Client) -> None:
        assert await told(client, "late", of_producer(0), of_producer(1)) == [UNKNOWN, UNKNOWN]
        proxy.metadata.add_topic("late", 1)
        assert await told(client, "late", of_producer(2), of_producer(0, producer_id=8)) == [AGAIN, 0]
        assert await told(client, "late", of_producer(0), of_producer(1), of_producer(2)) == [0, 0, 0]
        assert not proxy.role.proxy.appends.refused
        assert taken(proxy, "late") == [b"0", b"0", b"1", b"2"]

    run(test)


def test_another_connection_is_not_told_of_it_and_the_memory_goes_with_its_own() -> None:
    async def test(proxy: Running, client: Client) -> None:
        other = await proxy.connect()
        refused = proxy.role.proxy.appends.refused
        assert await told(other, "late", of_producer(0)) == [UNKNOWN]
        assert len(refused) == 1
        proxy.metadata.add_topic("late", 1)
        assert await told(client, "late", of_producer(1)) == [0]
        other.close()
        await until_async(lambda: not refused, "the connection's end", every_s=0.001)

    run(test)


@pytest.mark.parametrize("ends", [True, False])
def test_what_is_still_to_begin_when_its_connection_ends_does_not_overtake_what_was_refused_before(
    *, ends: bool
) -> None:
    async def test(proxy: Running, client: Client) -> None:
        assert await told(client, "late", of_producer(0)) == [UNKNOWN]
        proxy.metadata.add_topic("late", 2)
        client.send_produce("late", {0: of_producer(1), 1: of_producer(0, producer_id=9)})  # begun in turns
        await client.writer.drain()
        if ends:
            client.close()
            endpoint = proxy.role.server.endpoint
            await until_async(lambda: not endpoint.connections and not endpoint.in_flight, "its end")
            assert not proxy.role.proxy.appends.refused
        else:
            assert codes((await client.receive())[1]) == [AGAIN, 0]
        other = await proxy.connect()
        assert await told(other, "late", of_producer(0), of_producer(1)) == [0, 0]
        assert taken(proxy, "late") == [b"0", b"1"]

    run(test, ProxySettings(limits=limits_of({"produce_turn_partitions": 1})))


def test_what_is_refused_after_its_connection_is_over_is_not_noted() -> None:
    refused, origin = RefusedBatches(lambda: 0.0), Origin()
    refused.note(origin, ("orders", 0), of_producer(0), NotReady("not now"))
    origin.is_over = True
    refused.left(origin)
    refused.note(origin, ("orders", 0), of_producer(0), NotReady("not now"))
    assert not refused


@pytest.mark.parametrize(
    "error", [UnknownTopic("not here yet"), PartitionStopped("an object is missing"), StoreUnavailable("down")]
)
def test_what_its_owner_refuses_for_now_is_not_overtaken(error: Exception) -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.owner.refuse = [error] * 100  # type: ignore[list-item]
        [first] = await told(client, "orders", of_producer(0), timeout_ms=40)
        assert first != 0
        proxy.owner.refuse = []
        assert await told(client, "orders", of_producer(1)) == [AGAIN]
        assert await told(client, "orders", of_producer(0), of_producer(1)) == [0, 0]

    run(test)


def made_again(proxy: Running, name: str) -> None:
    """The topic is deleted, and there is another one of its name, both of which the proxy hears in one moment."""
    image = proxy.metadata.image
    old = image.topics[image.topic_ids[name]]
    new = replace(old, topic_id=TopicId(UUID(int=old.topic_id.int + 1)))
    others = {topic_id: topic for topic_id, topic in image.topics.items() if topic is not old}
    proxy.metadata.change(topics={**others, new.topic_id: new}, topic_ids={**image.topic_ids, name: new.topic_id})


@pytest.mark.usefixtures("both_loops")
def test_a_batch_for_a_topic_that_was_deleted_is_not_overtaken_in_the_one_that_has_its_name_now() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.owner.refuse = [UnknownTopic("deleted")] * 100
        client.send_produce("orders", {0: of_producer(0)}, timeout_ms=5_000)
        await until_async(lambda: len(proxy.owner.refuse) != 100, "the first refusal", every_s=0.001)
        made_again(proxy, "orders")
        proxy.owner.refuse = []
        assert codes((await client.receive())[1]) == [UNKNOWN]
        assert await told(client, "orders", of_producer(1)) == [AGAIN]
        assert await told(client, "orders", of_producer(0), of_producer(1)) == [0, 0]
        assert taken(proxy, "orders") == [b"0", b"1"]

    run(test)


def test_a_batch_that_comes_while_one_waits_for_a_deleted_topic_is_told_with_it_that_it_is_to_come_again() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.owner.refuse = [UnknownTopic("deleted")] * 100
        client.send_produce("orders", {0: of_producer(0)}, timeout_ms=5_000)
        await until_async(lambda: len(proxy.owner.refuse) != 100, "the first refusal", every_s=0.001)
        proxy.owner.refuse = []
        client.send_produce("orders", {0: of_producer(1)}, timeout_ms=5_000)
        made_again(proxy, "orders")  # the second one has left, and has not arrived
        assert [codes((await client.receive())[1]) for _ in range(2)] == [[UNKNOWN], [AGAIN]]
        assert await told(client, "orders", of_producer(0), of_producer(1)) == [0, 0]
        assert taken(proxy, "orders") == [b"0", b"1"]

    run(test)


def test_an_owner_whose_image_is_behind_is_asked_again_in_order() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.owner.refuse = [UnknownTopic("not here yet")]
        assert await told(client, "orders", of_producer(0), of_producer(1)) == [0, 0]
        assert taken(proxy, "orders") == [b"0", b"1"]

    run(test)


def test_what_came_damaged_is_not_overtaken_and_what_is_refused_for_good_holds_up_nothing() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.owner.refuse = [CorruptBatch("its checksum does not hold")]
        assert await told(client, "orders", of_producer(0), of_producer(1)) == [ErrorCode.corrupt_message, AGAIN]
        proxy.owner.refuse = [BatchTooLarge("10 bytes are the limit")]
        assert await told(client, "orders", of_producer(0), of_producer(1)) == [ErrorCode.message_too_large, 0]

    run(test)


@pytest.mark.parametrize("validation", ["header", "lengths", "records"])
def test_a_damaged_batch_is_refused_before_it_could_meet_those_behind_it_at_an_owner_far_away(validation: str) -> None:
    """Its records can be read, and its checksum does not hold."""

    async def test(proxy: Running, client: Client) -> None:
        proxy.metadata.add_topic("numbered", 1, {"bmq.validation": validation})
        proxy.owner.hold = True  # what reaches the owner is not answered before the next one is there
        damaged = bytearray(of_producer(0))
        damaged[-2] ^= 1
        assert await told(client, "numbered", bytes(damaged), of_producer(1)) == [ErrorCode.corrupt_message, AGAIN]
        proxy.owner.hold = False
        assert await told(client, "numbered", of_producer(0), of_producer(1)) == [0, 0]
        assert taken(proxy, "numbered") == [b"0", b"1"]

    run(test)


def test_a_batch_whose_time_is_up_is_not_overtaken() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.owner.refuse = [NotReady("opening")] * 100
        await told(client, "orders", of_producer(0), timeout_ms=40)
        proxy.owner.refuse = []
        assert await told(client, "orders", of_producer(1), of_producer(0), of_producer(1)) == [AGAIN, 0, 0]

    run(test)


def noted(*sequences: int, epoch: int = 0) -> tuple[RefusedBatches, Callable[..., bool]]:
    origin, place = Origin(), ("orders", 0)
    refused = RefusedBatches(lambda: 0.0)
    for sequence in sequences:
        refused.note(origin, place, of_producer(sequence, epoch=epoch), NotReady("not now"))

    def admits(sequence: int, **how: int) -> bool:
        try:
            refused.check(origin, place, of_producer(sequence, **how))
        except NotReady as error:
            assert "has to be sent again" in str(error)
            return False
        return True

    return refused, admits


def test_the_first_of_those_that_were_refused_is_the_one_that_is_waited_for() -> None:
    _, admits = noted(5, 3, 4)
    assert [admits(sequence) for sequence in (5, 4, 2, 3, 4, 5)] == [False, False, True, True, True, True]


def test_sequences_begin_again_at_zero() -> None:
    _, admits = noted(0, LAST)
    assert [admits(sequence) for sequence in (0, 1, LAST, 0)] == [False, False, True, True]


def test_a_producer_that_begins_a_new_epoch_is_not_waited_for() -> None:
    refused, admits = noted(3, epoch=1)
    assert admits(9, epoch=0)  # its owner says that it is too old
    assert not admits(9, epoch=1)
    assert admits(0, epoch=2)
    assert not refused


def test_a_batch_that_came_over_another_connection_is_not_waited_for_for_ever() -> None:
    now_s, origin, place = 5.0, Origin(), ("orders", 0)
    refused = RefusedBatches(lambda: now_s)

    def admits(sequence: int) -> bool:
        try:
            refused.check(origin, place, of_producer(sequence))
        except NotReady:
            return False
        return True

    refused.note(origin, place, of_producer(3), NotReady("not now"))
    now_s += WAITED_FOR_S - 1
    assert not admits(4)
    refused.note(origin, place, of_producer(4), NotReady("not now"))
    refused.note(origin, place, of_producer(3), NotReady("not now"))  # it came again
    now_s += WAITED_FOR_S - 1
    assert not admits(4)
    now_s += 1
    assert admits(4)
    assert not refused


def remembered(refused: RefusedBatches, origin: Origin, indexes: int) -> list[int]:
    """Of which partitions a batch is held up behind one that was refused."""
    held_up = []
    for index in range(indexes):
        try:
            refused.check(origin, ("orders", index), of_producer(1))
        except NotReady:
            held_up.append(index)
    return held_up


def test_a_connection_that_has_more_than_it_may_forgets_its_oldest() -> None:
    refused, one = RefusedBatches(lambda: 0.0, per_connection=2), Origin()
    for index in range(5):
        refused.note(one, ("orders", index), of_producer(0), NotReady("not now"))
    assert remembered(refused, one, 5) == [3, 4]
    assert len(refused) == 2


def test_an_address_that_has_most_forgets_its_own_where_all_have_more_than_they_may() -> None:
    refused = RefusedBatches(lambda: 0.0, per_connection=4, per_proxy=10)
    strangers = [Origin("10.0.0.2") for _ in range(5)]
    for one in strangers:
        for index in range(5):
            refused.note(one, ("orders", index), of_producer(0), NotReady("not now"))
    assert len(refused) == 10
    late = Origin()
    for index in range(3):
        refused.note(late, ("orders", index), of_producer(0), NotReady("not now"))
    for one in strangers:
        for index in range(5):
            refused.note(one, ("late", index), of_producer(0), NotReady("not now"))
    assert remembered(refused, late, 5) == [0, 1, 2]
    assert len(refused) == 10
    for one in (*strangers, late):
        refused.left(one)
    assert not refused
    assert not refused._addresses


def test_what_no_client_sends_again_or_no_producer_counts_is_not_noted() -> None:
    refused, origin = RefusedBatches(lambda: 0.0), Origin()
    tp = TopicPartition(TopicId(UUID(int=1)), 0)
    refused.note(origin, tp, build_batch([Record(0, 1_000, None, b"x")]), NotReady("not now"))
    refused.note(origin, tp, of_producer(0), BatchTooLarge("10 bytes are the limit"))
    refused.note(origin, tp, b"no batch", NotReady("not now"))
    refused.note(origin, ("n" * (NAME_CHARS_MAX + 1), 0), of_producer(0), UnknownTopic("no"))
    refused.note(None, tp, of_producer(0), NotReady("not now"))
    assert not refused
