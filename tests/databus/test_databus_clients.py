"""Writing through a real sidecar by its client for Python."""

import asyncio
import threading
from pathlib import Path

import pytest
from compat_server import Bmq
from confluent_kafka import Consumer, TopicPartition
from databus_process import CHANNELS, Databus
from tests.waiting import until

from bmq_databus.client import AsyncDatabus, Message, NotWritten, Refused, Unreachable
from bmq_databus.client import Databus as Client
from bmq_databus.client.batching import Batching

MESSAGES = 2_500


@pytest.fixture
def url(bmq: Bmq, databus: Databus) -> str:
    bmq.start()
    databus.start()
    return f"http://{databus.address}"


def records(bmq: Bmq, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """(key, value) of all that are in its one partition."""
    consumer = Consumer({"bootstrap.servers": bmq.servers, "group.id": "looks", "enable.auto.commit": False})
    place = TopicPartition(topic, 0, 0)
    consumer.assign([place])
    end = consumer.get_watermark_offsets(place, timeout=30)[1]
    found: list[tuple[bytes | None, bytes | None]] = []
    until(
        lambda: found.extend((one.key(), one.value()) for one in consumer.consume(1_000, 1)) or len(found) >= end, "all"
    )
    consumer.close()
    return found


def test_messages_are_written_one_by_one_together_and_in_their_order(bmq: Bmq, url: str) -> None:
    with Client(url) as client:
        assert client.send("orders", Message(key=b"\xff", value="first")).offset == 0
        written = client.write("orders", [Message(json={"n": 1}), Message(key="k")])
        assert [(one.status, one.offset) for one in written] == [(200, 1), (200, 2)]
        with client.writer("orders") as writer:
            futures = [writer.send(Message(value=str(number))) for number in range(MESSAGES)]
            writer.flush()
            assert all(future.done() for future in futures)
        assert [future.result().offset for future in futures] == list(range(3, 3 + MESSAGES))
        assert client.send("clicks", Message(value="accepted")).status == 202
    found = records(bmq, "orders")
    assert found[:3] == [(b"\xff", b"first"), (None, b'{"n":1}'), (b"k", None)]
    assert [value for _, value in found[3:]] == [str(number).encode() for number in range(MESSAGES)]


def test_the_same_in_an_event_loop_and_by_the_unix_socket(bmq: Bmq, tmp_path: Path) -> None:
    bmq.start()
    socket = tmp_path / "databus.sock"
    sidecar = Databus(bmq.servers, CHANNELS, tmp_path / "sidecar", unix=socket)
    sidecar.start()

    async def write() -> None:
        async with AsyncDatabus(unix=socket) as client:
            assert (await client.send("orders", Message(value="first"))).offset == 0
            async with client.writer("orders", Batching(queue_bytes_max=4_000)) as writer:
                futures = [await writer.send(Message(value=str(number))) for number in range(MESSAGES)]
                await writer.flush()
                assert all(future.done() for future in futures)
            assert [(await future).offset for future in futures] == list(range(1, 1 + MESSAGES))
            with pytest.raises(Refused, match="no channel"):
                await client.send("nowhere", Message(value="a"))

    try:
        asyncio.run(write())
    finally:
        sidecar.stop()
    assert [value for _, value in records(bmq, "orders")[1:]] == [str(number).encode() for number in range(MESSAGES)]


def test_who_is_refused_is_told_why(url: str) -> None:
    with Client(url) as client:
        with pytest.raises(NotWritten) as refused:
            client.send("orders", Message(value="a", partition=1_000))
        assert refused.value.result.status == 404
        with pytest.raises(Refused) as closed:
            client.write("closed", [Message(value="a")])
        assert closed.value.status == 403
        with client.writer("orders") as writer:
            good, bad = writer.send(Message(value="a")), writer.send(Message(value="b", partition=1_000))
            assert good.result().is_written
            assert isinstance(bad.exception(), NotWritten)
        with pytest.raises(Exception, match="closed"):
            writer.send(Message(value="late"))


def test_a_sidecar_that_is_killed_and_comes_back_is_written_to_again(bmq: Bmq, databus: Databus, url: str) -> None:
    with Client(url, patience_s=60) as client:
        with client.writer("clicks", Batching(messages_max=50)) as writer:
            first = writer.send(Message(value="0"))
            assert first.result().status == 202
            # Killed between the cluster's answer and its note of that, it would rightly send it again.
            until(lambda: databus.value("bmq_databus_spool_messages", channel="clicks") == 0, "it to be sent")
            databus.kill9()
            futures = [writer.send(Message(value=str(number))) for number in range(1, 500)]
            address = databus.address
            databus.start(listen=address)
        assert all(future.result().is_written for future in futures)
    until(lambda: len(records(bmq, "clicks-raw")) >= 500, "what is in the spool to be in the cluster")
    assert [value for _, value in records(bmq, "clicks-raw")] == [str(number).encode() for number in range(500)]


def test_one_that_does_not_come_back_is_told_and_threads_that_wait_end(databus: Databus, url: str) -> None:
    with Client(url, patience_s=1.0) as client:
        databus.stop()
        with pytest.raises(Unreachable, match="is the sidecar running"):
            client.send("orders", Message(value="a"))
        with client.writer("orders", Batching(queue_bytes_max=100)) as writer:
            futures = []
            sends = threading.Thread(
                target=lambda: futures.extend(writer.send(Message(value="x" * 90)) for _ in range(4))
            )
            sends.start()
            sends.join(60)
            assert not sends.is_alive()
        assert all(isinstance(future.exception(), Unreachable) for future in futures) and len(futures) == 4
