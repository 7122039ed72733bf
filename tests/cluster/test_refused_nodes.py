"""A node that does not belong, is too old or too new, or was started twice: refused, or it ends, with one line that
names the remedy.
"""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic

import pytest
from server_process import Server, newer_bmq, server_arguments
from tests.waiting import let_pass

from bmq.internal.framing.apis import PROTOCOL_VERSION, PROTOCOL_VERSION_MIN

FAILED, MISCONFIGURED = 1, 2
QUIET_S = 4
"""Longer than what a node that lost its id would take to come back."""

pytestmark = pytest.mark.slow

Start = Callable[..., Server]


@pytest.fixture
def store(tmp_path: Path) -> str:
    (tmp_path / "data").mkdir()
    return f"file://{tmp_path}/data?shared=true"


@pytest.fixture
def start(store: str, tmp_path: Path) -> Iterator[Start]:
    """Starts a node over the store; ended with the test, however it ends."""
    running: list[Server] = []

    def one(roles: str, node_id: int, *more: str, **options: object) -> Server:
        log = tmp_path / f"{len(running)}-{roles}-{node_id}.log"
        running.append(Server(server_arguments(roles, node_id, store, *more), log=log, **options))  # type: ignore[arg-type]
        return running[-1]

    yield one
    for server in running:
        server.close()


def only_line(server: Server) -> str:
    """What a node that ended has told people."""
    said = server.said()
    assert len(said) == 1, said
    print(said[0])
    assert said[0].startswith("error: "), said
    assert "Traceback" not in server.text()
    return said[0]


def test_the_store_of_another_cluster_is_refused(start: Start, store: str) -> None:
    start("controller", 201, "--cluster-id", "first").until_it_serves()
    for roles, node_id in (("broker", 101), ("controller", 202), ("proxy", 1)):
        stranger = start(roles, node_id, "--cluster-id", "second")
        assert stranger.until_end() == MISCONFIGURED
        line = only_line(stranger)
        assert "cluster_id 'second'" in line and "belongs to cluster 'first'" in line and "own store, or its id" in line


def newest_entry(tmp_path: Path) -> Path:
    return max((tmp_path / "data" / "meta" / "log").iterdir())


def of_version(data: bytes, version: int) -> bytes:
    """An object of bmq's with another format version (docs/formats/envelope.md)."""
    return data[:4] + version.to_bytes(2, "big") + data[6:]


def test_metadata_of_a_newer_bmq_are_refused_at_the_start_and_end_a_node_that_runs(
    start: Start, tmp_path: Path
) -> None:
    controller = start("controller", 201)
    controller.until_it_serves()
    proxy = start("proxy", 1)
    proxy.until_it_serves()
    assert controller.stop() == 0
    newest = newest_entry(tmp_path)
    following = newest.with_name(str(int(newest.name) + 1).zfill(len(newest.name)))
    following.write_bytes(of_version(newest.read_bytes(), 999))
    assert proxy.until_end() == FAILED
    late = start("proxy", 2)
    assert late.until_end() == FAILED
    for server in (proxy, late):
        line = only_line(server)
        assert "version 999" in line and "upgrade" in line, line


def test_a_peer_of_a_newer_protocol_is_told_so_and_the_others_go_on(start: Start) -> None:
    controller, proxy = start("controller", 201), start("proxy", 1)
    for server in (controller, proxy):
        server.until_it_serves()
    newer = start("broker", 101, bmq=newer_bmq())
    told = newer.until_line("this node waits for a controller")["reason"]
    print(told)
    newest = PROTOCOL_VERSION + 1
    ours = f"{PROTOCOL_VERSION_MIN} to {PROTOCOL_VERSION}"
    assert (
        f"node 101 speaks versions {newest} to {newest} of the internal protocol, node 201 {ours}: upgrade the "
        "older one" in told
    )
    said = controller.until_line("internal connection refused")["reason"]
    print(said)
    assert "upgrade the older one" in said
    let_pass(QUIET_S, "it does not say so again")
    assert len(controller.lines("internal connection refused")) <= 3, "the same line again and again"
    assert all(server.is_alive() for server in (controller, proxy, newer))
    start("broker", 102).until_it_serves()


@pytest.mark.parametrize("roles", ["broker", "proxy", "controller"])
def test_of_two_nodes_with_one_id_the_first_ends_and_says_so_once_and_the_second_stays(
    start: Start, roles: str
) -> None:
    controllers = [start("controller", 201)]
    controllers[0].until_it_serves()
    node_id = {"broker": 101, "proxy": 1, "controller": 201}[roles]
    first = controllers[0] if roles == "controller" else start(roles, node_id)
    if roles != "controller":
        first.until_it_serves()
    second = start(roles, node_id)
    second.until_it_serves()
    began = monotonic()
    assert first.until_end(timeout_s=20) == FAILED
    print(f"it ended {monotonic() - began:.1f} s after the second served")
    line = only_line(first)
    assert f"node {node_id} was started again elsewhere" in line
    assert "different node ids" in line
    let_pass(QUIET_S, "the second is not fenced in turn")
    assert second.is_alive(), second.text()
    assert not second.lines("this broker was replaced") + second.lines("registers again"), "it was fenced in turn"
    assert second.stop() == 0, second.text()


def test_a_broker_that_was_silent_too_long_comes_back_and_is_no_duplicate(start: Start) -> None:
    """The same process keeps its id."""
    start("controller", 201).until_it_serves()
    first, second = start("broker", 101), start("broker", 102)
    for server in (first, second):
        server.until_it_serves()
    first.process.send_signal(signal.SIGSTOP)
    try:
        let_pass(8, "longer than it may be silent")
    finally:
        first.process.send_signal(signal.SIGCONT)
    first.until_line("starts again under a new epoch", timeout_s=20)
    let_pass(1, "it stays")
    assert first.is_alive()
    assert first.stop() == 0
