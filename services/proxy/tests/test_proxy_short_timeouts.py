"""A time-out shorter than the store needs does not make a client send again what is written."""

import asyncio

import pytest
from one_connection import codes, nothing_comes, run
from proxy_in_memory import Client, Running, batch
from tests.waiting import until_async

from bmq.errors import NotReady
from bmq.wire.compression import Codec
from bmq.wire.error_codes import ErrorCode
from bmq.wire.records import Record, build_batch
from bmq_proxy.settings import ProxySettings

pytestmark = pytest.mark.usefixtures("both_loops")


async def time_passes(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    since_s = loop.time()
    await until_async(lambda: loop.time() > since_s + seconds, "the time to pass")


@pytest.mark.parametrize("acks", [-1, 1])
@pytest.mark.parametrize("timeout_ms", [-1, 0, 1])
def test_what_an_owner_has_is_answered_when_it_is_durable_however_short_the_time_out(
    acks: int, timeout_ms: int
) -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.owner.hold = True
        client.send_produce("orders", {0: batch(b"a"), 1: batch(b"b")}, acks=acks, timeout_ms=timeout_ms)
        await until_async(lambda: len(proxy.owner.held) == 2, "two appends at the owner")
        await time_passes(0.02)
        proxy.owner.let_go(2)
        assert codes((await client.receive())[1]) == [0, 0]

    run(test)


def test_what_is_with_no_owner_yet_is_given_up_when_the_clients_own_time_is_over_and_not_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "bmq_proxy.appends.RETRY_FIRST_S", 60.0
    )  # not in the turn in which its time is over, on a machine that stood still

    async def test(proxy: Running, client: Client) -> None:
        proxy.owner.refuse = [NotReady("opening")]  # of partition 0, which comes first
        proxy.owner.hold = True
        client.send_produce("orders", {0: batch(b"a"), 1: batch(b"b")}, timeout_ms=1)
        await until_async(lambda: len(proxy.owner.held) == 1, "one append at the owner")
        await time_passes(0.1)
        proxy.owner.let_go()
        refused, taken = codes((await client.receive())[1])
        assert refused in (ErrorCode.request_timed_out, ErrorCode.not_leader_or_follower)
        assert taken == 0
        assert [tp.partition for tp, _ in proxy.owner.appended] == [1]

    run(test)


def test_what_is_being_proved_when_the_clients_time_is_over_is_written_and_said_to_be() -> None:
    """Compressed batches of unknown size are opened in a thread."""

    async def test(proxy: Running, client: Client) -> None:
        value = bytes(range(256)) * 4_000
        compressed = build_batch([Record(0, 1_000, None, value)], codec=Codec.ZSTD)
        for _ in range(10):
            client.send_produce("orders", {0: compressed}, timeout_ms=0)
        assert [codes((await client.receive())[1]) for _ in range(10)] == [[0]] * 10

    run(test)


def test_an_owner_that_never_answers_is_waited_for_no_longer_than_the_least_time_out() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.owner.hold = True
        began_s = asyncio.get_running_loop().time()
        client.send_produce("orders", {0: batch(b"a")}, timeout_ms=1)
        assert codes((await client.receive())[1]) == [ErrorCode.request_timed_out]
        assert asyncio.get_running_loop().time() - began_s >= 0.05

    run(test, ProxySettings(write_timeout_ms_min=50))


def test_who_wants_no_answer_keeps_the_connection_when_an_owner_is_slow() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.owner.hold = True
        client.send_produce("orders", {0: batch(b"a")}, acks=0, timeout_ms=1)
        await until_async(lambda: len(proxy.owner.held) == 1, "one append at the owner")
        await time_passes(0.05)
        asked = client.send(3, 9, {"topics": None})
        assert (await client.receive())[0] == asked
        assert await nothing_comes(client)

    run(test, ProxySettings(write_timeout_ms_min=1))


@pytest.mark.parametrize("timeout_ms", [-1, 0, 1])
def test_records_are_deleted_and_said_to_be_however_short_the_time_out(timeout_ms: int) -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.owner.gate = asyncio.Event()
        client.send_produce("orders", {0: batch(b"a", b"b", b"c")})
        await client.receive()
        topics = [{"name": "orders", "partitions": [{"partition_index": 0, "offset": 2}]}]
        client.send(21, 2, {"topics": topics, "timeout_ms": timeout_ms})
        await time_passes(0.02)
        proxy.owner.gate.set()
        [one] = (await client.receive())[1].topics[0].partitions
        assert (one.error_code, one.low_watermark) == (0, 2)

    run(test)


def test_records_that_an_owner_does_not_delete_in_time_are_said_to_have_timed_out() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.owner.gate = asyncio.Event()
        topics = [{"name": "orders", "partitions": [{"partition_index": 0, "offset": 0}]}]
        answer = await client.ask(21, 2, {"topics": topics, "timeout_ms": 1})
        assert answer.topics[0].partitions[0].error_code == ErrorCode.request_timed_out

    run(test, ProxySettings(write_timeout_ms_min=20))
