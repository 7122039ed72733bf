"""A clock an hour off: nothing is deleted by time, and a line says so. With the clock right again, it is."""

from collections.abc import Callable, Iterator
from pathlib import Path
from time import time

import pytest
from compat_server import Minio
from survival_process import Survivor, exit_of_up
from survival_wire import NO_ERROR, batch_of, create_topic, produce
from tests.bare_client import BareClient
from tests.waiting import let_pass, until

from bmq.wire.apis import ApiKey

HOUR_S = 3600
CHECK_MS = 1_000


@pytest.fixture
def minio(tmp_path: Path) -> Iterator[Minio]:
    server = Minio(tmp_path / "minio")
    yield server
    server.stop()


def shifted(faketime: str, seconds: int) -> dict[str, str]:
    """The variables of a process whose wall clock is so far ahead; its timers run as ever, and a folder's times stay
    right.
    """
    return {
        "LD_PRELOAD": faketime,
        "FAKETIME": f"{seconds:+d}s",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    }


def fill(bmq: Survivor, *, minutes_old: int) -> int:
    """Makes a topic that keeps 45 minutes, with segments of records that old; the number of batches."""
    with BareClient(bmq.servers) as peer:
        create_topic(peer, "aging", configs=[("retention.ms", str(45 * 60_000))])
        at_ms = int((time() - minutes_old * 60) * 1000)
        for number in range(3):
            assert (
                produce(peer, "aging", 0, batch_of(b"%d" % number + bytes(900_000), timestamp_ms=at_ms))[0] == NO_ERROR
            )
    assert bmq.stop() == 0, bmq.tail_of_log()  # a clean stop makes a segment of it
    return 3


def log_start(bmq: Survivor) -> int:
    with BareClient(bmq.servers) as peer:
        asked = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -2}
        answer = peer.ask(
            ApiKey.LIST_OFFSETS,
            5,
            {"replica_id": -1, "isolation_level": 0, "topics": [{"name": "aging", "partitions": [asked]}]},
        )
        return int(answer.topics[0].partitions[0].offset)


def test_a_clock_an_hour_ahead_deletes_nothing_and_says_so(
    started: Callable[..., Survivor], faketime: str, tmp_path: Path
) -> None:
    """Half an hour old records, kept for 45 minutes. The other cluster has the right clock, and records that are really
    too old.
    """
    for name, minutes_old in (("ahead", 30), ("right", 60)):
        first = started("--data", str(tmp_path / name), name=f"{name}-first")
        first.start()
        fill(first, minutes_old=minutes_old)
    often = ("--config", f"log.retention.check.interval.ms={CHECK_MS}")
    ahead = started("--data", str(tmp_path / "ahead"), *often, name="ahead", environment=shifted(faketime, HOUR_S))
    right = started("--data", str(tmp_path / "right"), *often, name="right")
    ahead.start()
    right.start()
    assert log_start(ahead) == 0
    line = ahead.until_line("clock differs from the store's: nothing is deleted by time", timeout_s=10)
    assert abs(abs(line["skew_ms"]) - HOUR_S * 1000) < 60_000, line
    # opened for its age: nobody has asked for it
    right.until_metric('bmq_partitions{state="appending"}', 1, timeout_s=30)
    until(lambda: log_start(right), "retention to run", holds=lambda start: start == 3, shows=right.tail_of_log)
    let_pass(3 * CHECK_MS / 1000, "the other looks, too, and deletes nothing")
    assert log_start(ahead) == 0
    assert not any("clock differs" in str(line) for line in right.lines())
    assert ahead.stop() == 0
    assert right.stop() == 0


def test_a_bucket_that_refuses_a_clock_an_hour_ahead_is_explained(faketime: str, minio: Minio, tmp_path: Path) -> None:
    """S3 itself takes no request that is signed with such a time: nothing is read, written or deleted."""
    addresses = ("--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
    code, lines, _ = exit_of_up(
        "--store",
        minio.store_url("shifted"),
        *addresses,
        cwd=tmp_path,
        environment={**minio.environment, **shifted(faketime, HOUR_S)},
        timeout_s=40,
    )
    assert code in (1, 2)
    assert len(lines) == 1, lines
    print(lines[0])
    assert "clock" in lines[0], lines
