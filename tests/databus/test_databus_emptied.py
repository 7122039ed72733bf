"""A sidecar whose disk goes with it: its end waits until the cluster has what it accepted."""

from pathlib import Path

from compat_server import Bmq
from confluent_kafka import Consumer
from databus_process import CHANNELS, Databus
from tests.waiting import until


def test_an_end_waits_until_the_cluster_has_what_was_accepted(bmq: Bmq, tmp_path: Path) -> None:
    databus = Databus(bmq.servers, CHANNELS, tmp_path, options=["--empty-spools-seconds", "90"])
    databus.start()
    for n in range(20):
        assert databus.post("clicks", f"m{n}".encode())[0] == 202
    assert databus.process is not None
    process = databus.process
    process.terminate()
    known = [f"m{n}" for n in range(20)]
    until(lambda: _is_refused(databus, known), "it takes nothing more")
    assert process.poll() is None
    bmq.start()
    until(lambda: process.poll() is not None, "its end", 90, shows=databus.log.read_text)
    assert databus.stop() == 0
    assert _values(bmq, len(known)) == known
    databus.start()
    assert databus.value("bmq_databus_spool_messages", channel="clicks") == 0
    assert databus.stop() == 0


def test_an_end_without_a_cluster_waits_no_longer_says_what_is_left_and_keeps_it(bmq: Bmq, tmp_path: Path) -> None:
    databus = Databus(bmq.servers, CHANNELS, tmp_path, options=["--empty-spools-seconds", "1"])
    databus.start()
    assert databus.post("clicks", b"m")[0] == 202
    assert databus.stop() == 0
    assert "spool is left with messages that the cluster does not have" in databus.log.read_text()
    databus.start()
    assert databus.value("bmq_databus_spool_messages", channel="clicks") == 1
    databus.kill9()


def _is_refused(databus: Databus, known: list[str]) -> bool:
    """What it takes all the same is known, too."""
    text = f"late {len(known)}"
    try:
        status, _ = databus.post("clicks", text.encode())
    except OSError:
        return True
    known += [text] if status == 202 else []
    return status != 202


def _values(bmq: Bmq, count: int) -> list[str]:
    settings = {"bootstrap.servers": bmq.servers, "group.id": "test", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe(["clicks-raw"])
    found: list[str] = []

    def have() -> bool:
        found.extend((one.value() or b"").decode() for one in consumer.consume(1000, 0.2) if not one.error())
        return len(found) >= count

    try:
        until(have, f"{count} records", 60, shows=lambda: f"{len(found)} are there")
    finally:
        consumer.close()
    return found
