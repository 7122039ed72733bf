"""An append that was certainly not applied is sent again, and no other."""

import pytest
from one_connection import codes, run
from proxy_in_memory import Client, Running, batch

from bmq.errors import NotOwner, NotReady, OutOfOrderSequence, StoreUnavailable
from bmq.values import TopicPartition
from bmq.wire.error_codes import ErrorCode

pytestmark = pytest.mark.usefixtures("both_loops")


def test_what_was_not_applied_is_sent_again_in_order() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.owner.refuse = [NotReady("opening"), NotReady("opening"), NotOwner("moved")]
        sent = [client.send_produce("orders", {0: batch(b"%d" % n)}) for n in range(4)]
        answers = [await client.receive() for _ in sent]
        assert [codes(one) for _, one in answers] == [[0]] * 4
        assert [one.responses[0].partition_responses[0].base_offset for _, one in answers] == [0, 1, 2, 3]

    run(test)


def test_what_may_have_been_applied_is_not_sent_again() -> None:
    async def test(proxy: Running, client: Client) -> None:
        for error, code in (
            (StoreUnavailable("down"), ErrorCode.kafka_storage_error),
            (OutOfOrderSequence("gap"), ErrorCode.out_of_order_sequence_number),
        ):
            proxy.owner.refuse = [error]
            client.send_produce("orders", {0: batch(b"a")})
            assert codes((await client.receive())[1]) == [code]
        assert proxy.owner.appended == []

    run(test)


def test_a_batch_that_is_given_up_is_not_sent_afterwards() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.owner.refuse = [NotReady("opening")] * 1_000
        client.send_produce("orders", {0: batch(b"a")}, timeout_ms=60)
        [code] = codes((await client.receive())[1])
        assert code in (ErrorCode.request_timed_out, ErrorCode.not_leader_or_follower)
        proxy.owner.refuse = []
        client.send_produce("orders", {0: batch(b"b")})
        assert (await client.receive())[1].responses[0].partition_responses[0].base_offset == 0
        topic = proxy.metadata.image.topic("orders")
        assert topic is not None
        assert proxy.owner.appended == [(TopicPartition(topic.topic_id, 0), 0)]
        assert proxy.role.server.endpoint.request_memory.held_bytes == 0

    run(test)
