"""The store is down, full or read-only for a while: producers wait or may try again, memory is bounded, all goes on by
itself, nothing is lost.

`BMQ_OUTAGE_S` is how long (default 5; the promise is 60).
"""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic

import pytest
from compat_server import BMQ, Minio
from kafka import KafkaConsumer, TopicPartition
from survival_process import Survivor, tool
from survival_workload import Workload
from tests.waiting import let_pass, until

OUTAGE_S = float(os.environ.get("BMQ_OUTAGE_S", "5"))
GOES_ON_WITHIN_S = 25
CREATE_S = 10
RSS_MIB_MAX = 640
"""However long it lasts, with six producers that flood: 256 MiB of tails, 96 of requests twice (as they came, and as
they are kept), the process itself, what is on its way to the store, and what the allocator has not given back yet."""
TROUBLE = "store trouble, trying again"
DISK_MIB = 48


@pytest.fixture(scope="module")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Minio]:
    server = Minio(tmp_path_factory.mktemp("minio"))
    yield server
    server.stop()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, so small that it is soon full."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "bmq-test", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a small disk needs the right to mount one: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def go_through(
    bmq: Survivor,
    topic: str,
    *,
    begin: Callable[[], None],
    end: Callable[[], None],
    outage_s: float,
    flood: bool = True,
    is_refused: bool = True,
) -> list[str]:
    """The reasons that were logged during the outage. `is_refused`: whether nothing is acknowledged meanwhile."""
    with Workload(bmq.servers, topic, flood=flood) as workload:
        workload.until_acknowledged(after=monotonic(), timeout_s=20)
        let_pass(1, "load before it")
        log_at = bmq.log_size()
        begin()
        began = monotonic()
        try:
            let_pass(outage_s, "the outage")
            assert bmq.is_alive(), bmq.tail_of_log()
            if is_refused:
                assert workload.acknowledged.newest_at < began + 3, "something was acknowledged that no store has"
            else:
                workload.until_acknowledged(after=monotonic(), timeout_s=5)
        finally:
            end()
        lasted_s = monotonic() - began
        recovered_s = workload.until_acknowledged(after=monotonic(), timeout_s=GOES_ON_WITHIN_S)
        let_pass(1, "load behind it")
    peak_mib = bmq.peak_mib()
    trouble = [line for line in bmq.lines(after=log_at) if line.get("event") == TROUBLE]
    print(
        f"{topic}: {workload.verify(bmq.servers)} acknowledged records are there, {workload.acknowledged.refused} "
        f"were refused, goes on {recovered_s:.1f} s after the outage, RSS at most {peak_mib:.0f} MiB, "
        f"{len(trouble)} lines in the log"
    )
    assert peak_mib <= RSS_MIB_MAX
    assert is_refused <= len(trouble) <= 4 + 4 * lasted_s / 10, "each kind of trouble once in ten seconds"
    assert not [line for line in bmq.lines(after=log_at) if "exception" in line or "Traceback" in line.get("text", "")]
    return [line["error"] for line in trouble]


def status(bmq: Survivor) -> str:
    """What `bmq cluster status` prints."""
    command = [str(BMQ), "cluster", "status", "--admin", f"127.0.0.1:{bmq.admin_port}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def test_a_bucket_that_does_not_answer(started: Callable[..., Survivor], minio: Minio) -> None:
    bmq = started("--store", minio.store_url("stalled"), environment=minio.environment)
    bmq.start()
    pid = int((minio._folder / "pid").read_text())
    go_through(
        bmq,
        "stalled",
        begin=lambda: os.kill(pid, signal.SIGSTOP),
        end=lambda: os.kill(pid, signal.SIGCONT),
        outage_s=OUTAGE_S + CREATE_S,  # no answer is trouble only when the time of a create is over
    )
    assert bmq.stop() == 0


def test_a_bucket_whose_server_is_gone(started: Callable[..., Survivor], minio: Minio) -> None:
    bmq = started("--store", minio.store_url("gone"), environment=minio.environment)
    bmq.start()
    go_through(
        bmq,
        "gone",
        begin=minio.stop,
        end=lambda: tool("minio", "start", str(minio._folder), str(minio.port)) and None,
        outage_s=OUTAGE_S,
    )
    assert bmq.stop() == 0


def read_from_its_beginning(servers: str, topic: str) -> None:
    """By somebody in no group, who knows no offset and has to ask for the first and the last."""
    consumer = KafkaConsumer(bootstrap_servers=servers, group_id=None, auto_offset_reset="earliest")
    partition = TopicPartition(topic, 0)
    end = consumer.end_offsets([partition])[partition]
    assert consumer.beginning_offsets([partition])[partition] == 0 < end
    consumer.assign([partition])
    found: list[int] = []
    deadline = monotonic() + 30
    while len(found) < end:
        assert monotonic() < deadline, f"{len(found)} of {end} came"
        found += [record.offset for record in consumer.poll(1_000).get(partition, ())]
    assert found == list(range(len(found)))
    consumer.close()


def fill(ballast: Path) -> None:
    """Its disk."""
    with ballast.open("wb", buffering=0) as out:
        try:
            while True:
                out.write(bytes(1 << 20))
        except OSError:
            pass


def test_a_full_disk_is_named_and_all_goes_on_when_there_is_room(started: Callable[..., Survivor], disk: Path) -> None:
    data = disk / "data"
    bmq = started("--data", str(data))
    bmq.start()
    ballast = disk / "ballast"

    def told_and_emptied() -> None:
        until(
            lambda: status(bmq),
            "the status to name the problem",
            holds=lambda said: "problem: node 1 cannot write to the store for " in said,
            every_s=0.5,
        )
        read_from_its_beginning(bmq.servers, "full")
        ballast.unlink()

    assert "problem" not in status(bmq)
    reasons = go_through(bmq, "full", begin=lambda: fill(ballast), end=told_and_emptied, outage_s=OUTAGE_S, flood=False)
    assert all(str(data) in reason for reason in reasons), reasons
    assert any("No space left on device" in reason and "free space" in reason for reason in reasons), reasons
    assert bmq.stop() == 0


def test_a_full_disk_takes_small_writes_while_their_files_have_room(
    started: Callable[..., Survivor], disk: Path
) -> None:
    bmq = started("--store", f"file://{disk}/data?ring=true")
    bmq.start()
    ballast = disk / "ballast"
    go_through(
        bmq,
        "full",
        begin=lambda: fill(ballast),
        end=ballast.unlink,
        outage_s=OUTAGE_S,
        flood=False,
        is_refused=False,
    )
    assert bmq.stop() == 0


def test_a_folder_that_became_read_only_is_named(started: Callable[..., Survivor], disk: Path) -> None:
    data = disk / "data"
    bmq = started("--data", str(data))
    bmq.start()

    def remount(mode: str) -> None:
        command = ["mount", "-o", f"remount,{mode}", str(disk)]
        until(
            lambda: subprocess.run(command, capture_output=True, check=False),
            f"{disk} to become {mode}: it is refused while a file is being written",
            holds=lambda ended: ended.returncode == 0,
            every_s=0.01,
        )

    reasons = go_through(
        bmq, "read-only", begin=lambda: remount("ro"), end=lambda: remount("rw"), outage_s=4, flood=False
    )
    assert all(str(data) in reason and "read-only" in reason.lower() for reason in reasons), reasons
    assert bmq.stop() == 0
