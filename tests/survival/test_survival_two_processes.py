"""Two bmqs on one store: a folder has one holder; on a bucket the second takes over and the first ends by itself,
once.
"""

from collections.abc import Callable
from pathlib import Path
from time import monotonic

import pytest
from compat_server import Minio
from survival_process import Survivor, exit_of_up
from survival_wire import NO_ERROR, batch_of, create_topic, produce
from survival_workload import Workload, read_all
from tests.bare_client import BareClient
from tests.waiting import let_pass, until

TAKEN_OVER_WITHIN_S = 15
QUIET_S = 3


@pytest.fixture
def minio(tmp_path: Path):  # type: ignore[no-untyped-def]
    server = Minio(tmp_path / "minio")
    yield server
    server.stop()


def test_a_folder_is_refused_to_the_second_with_the_holders_process(
    started: Callable[..., Survivor], tmp_path: Path
) -> None:
    data = tmp_path / "data"
    first = started("--data", str(data))
    start_s = first.start()
    code, lines, seconds = exit_of_up(
        "--data", str(data), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", cwd=tmp_path
    )
    assert code == 1, "as docs/cli.md says of a folder in use"
    assert len(lines) == 1, lines
    assert str(data) in lines[0]
    assert str(first.pid) in lines[0]
    assert seconds < 10 + 2 * start_s, "it is told, and does not wait"
    with BareClient(first.servers) as peer:
        create_topic(peer, "still-served")
        assert produce(peer, "still-served", 0, batch_of(b"here"))[0] == NO_ERROR
    first.kill9()
    second = started("--data", str(data), name="second")
    second.start()
    with BareClient(second.servers) as peer:
        assert dict(read_all(peer, "still-served", 0)) == {0: b"here"}
    assert second.stop() == 0


def test_on_a_bucket_the_second_takes_over_and_the_first_ends_by_itself(
    started: Callable[..., Survivor], minio: Minio
) -> None:
    """Producers write to the first until it is gone, then to the second."""
    store = minio.store_url("shared")
    first = started("--store", store, name="first", environment=minio.environment)
    second = started("--store", store, name="second", environment=minio.environment)
    first.start()
    with Workload(first.servers, "shared", flood=False) as workload:
        workload.until_acknowledged(after=monotonic(), timeout_s=20)
        let_pass(1, "load before it")
        second.start()
        began = monotonic()
        code = first.until_end(timeout_s=TAKEN_OVER_WITHIN_S)
        print(f"the first ended {monotonic() - began:.1f} s after the second was ready")
        workload.servers = second.servers
        workload.until_acknowledged(after=monotonic(), timeout_s=20)
        let_pass(QUIET_S, "it is not fenced in turn")
        assert second.is_alive(), "the second was fenced in turn:\n" + second.tail_of_log()
        assert second.is_ready()
    assert code not in (0, 2), first.tail_of_log()
    last = [line["text"] for line in first.lines() if "text" in line][-1]
    assert last.startswith("error: "), first.tail_of_log()
    assert "another" in last, last
    assert not any("Traceback" in line.get("text", "") or "exception" in line for line in first.lines()), (
        first.tail_of_log()
    )
    print(f"{workload.verify(second.servers)} acknowledged records are there; the first said: {last}")
    claims = sum(line.get("event") == "controller leads" for server in (first, second) for line in server.lines())
    assert claims == 2, "each leads once: no fencing in turns"
    assert second.stop() == 0


def test_of_two_started_at_once_on_a_bucket_one_is_left(started: Callable[..., Survivor], minio: Minio) -> None:
    store = minio.store_url("raced")
    servers = [started("--store", store, name=f"racer-{index}", environment=minio.environment) for index in range(2)]
    for server in servers:
        server.launch()
    alive = until(
        lambda: [server for server in servers if server.is_alive()],
        "one to be left, and ready",
        40,
        holds=lambda left: len(left) == 1 and left[0].is_ready(),
        unless=lambda: not any(server.is_alive() for server in servers),
        shows=lambda: servers[0].tail_of_log() + servers[1].tail_of_log(),
    )
    let_pass(QUIET_S, "it is not fenced in turn")
    (left,) = alive
    assert left.is_ready(), left.tail_of_log()
    with BareClient(left.servers) as peer:
        create_topic(peer, "raced")
        assert produce(peer, "raced", 0, batch_of(b"here"))[0] == NO_ERROR
    (other,) = (server for server in servers if server is not left)
    assert other.until_end(timeout_s=1) not in (0, 2, -9), other.tail_of_log()
    assert left.stop() == 0
