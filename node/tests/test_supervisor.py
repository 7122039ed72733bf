"""Keeping processes running: real ones, each a few lines of shell."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from time import monotonic

import pytest
from tests.waiting import until_async

from bmq_node.process import supervisor
from bmq_node.process.supervised import SUPERVISOR_VARIABLE
from bmq_node.process.supervisor import Child, Program, supervise

STEADY = "trap 'exit 0' TERM; echo serves; while :; do sleep 0.05; done"


def program(name: str, script: str, *, stop_rank: int = 0) -> Program:
    return Program(name=name, command=("sh", "-c", script), stop_rank=stop_rank)


def run(programs: Sequence[Program], then: Callable[[Sequence[Child], asyncio.Event], Awaitable[None]]) -> int:
    """Supervises until `then` sets the event; the exit code."""

    async def main() -> int:
        stop = asyncio.Event()

        async def serving(children: Sequence[Child]) -> None:
            await then(children, stop)

        async with asyncio.timeout(20):
            return await supervise(programs, stop, serving=serving)

    return asyncio.run(main())


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_all_are_stopped_in_their_order_and_none_is_left(tmp_path: Path) -> None:
    ended = tmp_path / "ended"
    slow = f"trap 'sleep 0.3; echo first >>{ended}; exit 0' TERM; echo serves; while :; do sleep 0.05; done"
    quick = f"trap 'echo last >>{ended}; exit 0' TERM; echo serves; while :; do sleep 0.05; done"
    pids: list[int | None] = []

    async def then(children: Sequence[Child], stop: asyncio.Event) -> None:
        assert [child.serves.result() for child in children] == ["serves", "serves"]
        pids.extend(child.pid for child in children)
        stop.set()

    assert run([program("a", quick, stop_rank=1), program("b", slow)], then) == 0
    assert ended.read_text().split() == ["first", "last"]
    assert not any(is_alive(pid) for pid in pids if pid is not None)


def test_one_that_is_killed_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "RESTART_FIRST_S", 0.05)

    async def then(children: Sequence[Child], stop: asyncio.Event) -> None:
        [child] = children
        for restarts in (1, 2):
            first = child.pid
            assert first is not None
            os.kill(first, signal.SIGKILL)
            await until_async(
                lambda restarts=restarts, first=first: child.restarts == restarts and child.pid not in (first, None),
                "another process",
                every_s=0.01,
            )  # type: ignore[misc]
        stop.set()

    assert run([program("a", STEADY)], then) == 0


def test_one_that_refuses_its_configuration_ends_all_also_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "RESTART_FIRST_S", 0.05)
    wrong = tmp_path / "wrong"
    script = f"[ -e {wrong} ] && exit 2; {STEADY}"
    others: list[int | None] = []

    async def then(children: Sequence[Child], stop: asyncio.Event) -> None:
        others.append(children[1].pid)
        wrong.touch()
        assert children[0].pid is not None
        os.kill(children[0].pid, signal.SIGKILL)

    assert run([program("a", script), program("b", STEADY)], then) == 2
    assert others[0] is not None
    assert not is_alive(others[0])


@pytest.mark.parametrize(
    ("script", "code"), [("exit 1", 1), ("exit 2", 2), ("kill -9 $$", 1), ("sleep 0.2; exit 7", 7)]
)
def test_one_that_ends_before_all_serve_ends_all(script: str, code: int) -> None:
    async def then(children: Sequence[Child], stop: asyncio.Event) -> None:
        raise AssertionError("not all serve")

    assert run([program("a", script), program("b", STEADY)], then) == code


def test_one_that_does_not_stop_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "STOP_S", 0.2)
    stubborn = "trap '' TERM; echo serves; while :; do sleep 0.05; done"

    async def then(children: Sequence[Child], stop: asyncio.Event) -> None:
        stop.set()

    assert run([program("a", stubborn)], then) == 0


@pytest.mark.parametrize("after_s", [0.0, 0.4])
def test_a_child_ends_when_its_supervisor_is_killed_whether_it_is_ready_or_not(after_s: float) -> None:
    with subprocess.Popen([sys.executable, "-c", _PARENT, str(after_s)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        if after_s == 0:
            assert parent.stdout.readline() == "armed\n"
        parent.kill()
    deadline = monotonic() + 10
    while is_alive(child):
        assert monotonic() < deadline, "the child lives on"


_PARENT = f"""
import os, subprocess, sys, time
child = '''
import sys, time
from bmq_node.process.supervised import end_with_supervisor
time.sleep(float(sys.argv[1]))
assert end_with_supervisor() is not None
print("armed", flush=True)
time.sleep(60)
'''
environment = {{**os.environ, "{SUPERVISOR_VARIABLE}": str(os.getpid())}}
process = subprocess.Popen([sys.executable, "-c", child, sys.argv[1]], env=environment)
print(process.pid, flush=True)
time.sleep(60)
"""
