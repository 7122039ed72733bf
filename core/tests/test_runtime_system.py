"""The machine's clock and entropy, logs, and the loop that a service runs on."""

import asyncio
import io
import json
import logging
import signal
import subprocess
import sys
from collections.abc import Iterator
from uuid import UUID

import pytest
import structlog
import uvloop
from prometheus_client import REGISTRY, generate_latest
from tests.waiting import until_async

from bmq.errors import ConfigurationError
from bmq.fairness.log_limit import KEYS_MAX, RateLimited
from bmq.runtime.logging import LIMIT_INTERVAL_S, LINES_MAX, SAME_LINES_MAX, configure_logging
from bmq.runtime.loop import raise_file_limit, run_service
from bmq.runtime.system import SystemClock, SystemRng


def test_nonces_are_sixteen_bytes_and_never_repeat() -> None:
    rng = SystemRng()
    nonces = [rng.nonce() for _ in range(5000)]
    assert {len(nonce) for nonce in nonces} == {16}
    assert len(set(nonces)) == 5000


def test_uuids_are_version_4_and_none_of_kafkas_reserved_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = SystemRng()
    for _ in range(2000):
        made = rng.uuid()
        assert (made.version, made.bytes[0] >> 2 == 62) == (4, False)
    offered = iter([b"\xf8" + bytes(15), b"\xfb" + bytes(15), b"\x01" * 16])  # base64url would begin with a dash
    monkeypatch.setattr(rng, "_take", lambda count: next(offered))
    assert rng.uuid() == UUID("01010101-0101-4101-8101-010101010101")


def test_random_is_uniform_in_zero_to_one() -> None:
    rng = SystemRng()
    drawn = [rng.random() for _ in range(4000)]
    assert all(0 <= number < 1 for number in drawn)
    assert 0.45 < sum(drawn) / len(drawn) < 0.55


def test_a_forked_child_does_not_repeat_its_parents_nonces() -> None:
    code = """
import os
from bmq.runtime.system import SystemRng
rng = SystemRng()
rng.nonce()
if os.fork() == 0:
    print(rng.nonce().hex(), flush=True)
    os._exit(0)
os.wait()
print(rng.nonce().hex())
"""
    lines = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert len(set(lines)) == 2


def test_the_clock_shows_unix_time_in_milliseconds() -> None:
    assert SystemClock().now_ms() > 1_700_000_000_000


@pytest.fixture
def logs() -> Iterator[io.StringIO]:
    before = (structlog.get_config(), logging.getLogger().handlers[:], logging.getLogger().level)
    yield io.StringIO()
    structlog.configure(**before[0])
    logging.getLogger().handlers[:] = before[1]
    logging.getLogger().setLevel(before[2])


def test_off_a_terminal_a_line_is_one_json_object_and_libraries_speak_the_same(logs: io.StringIO) -> None:
    configure_logging(environment={}, stream=logs)
    structlog.get_logger().info("broker ready", node_id=3)
    structlog.get_logger().debug("not shown")
    logging.getLogger("minio").info("not shown either")
    logging.getLogger("urllib3").warning("retrying %d", 2)
    first, second = (json.loads(line) for line in logs.getvalue().splitlines())
    assert (first["event"], first["level"], first["node_id"]) == ("broker ready", "info", 3)
    assert first["timestamp"].endswith("Z")
    assert (second["event"], second["level"], second["logger"]) == ("retrying 2", "warning", "urllib3")


class Hand:
    """A clock that is set by hand."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_nobody_fills_a_disk_with_lines_that_say_the_same(logs: io.StringIO) -> None:
    clock = Hand()
    configure_logging(environment={}, stream=logs, now_s=clock)
    for partition in range(20_000):
        structlog.get_logger().warning("partition is not open", partition=partition)
        structlog.get_logger().warning("partition %d of __consumer_offsets is odd", partition)
        logging.getLogger("urllib3").warning("retrying %d", partition)
    structlog.get_logger().info("something else")
    lines = [json.loads(line)["event"] for line in logs.getvalue().splitlines()]
    assert len(lines) == 3 * SAME_LINES_MAX + 1
    assert lines[-1] == "something else"
    clock.now_s += LIMIT_INTERVAL_S
    structlog.get_logger().warning("partition is not open", partition=-1, left_out=2)
    logging.getLogger("urllib3").warning("retrying %d", -1)
    first, second = (json.loads(line) for line in logs.getvalue().splitlines()[-2:])
    assert (first["partition"], first["left_out"]) == (-1, 2 + 20_000 - SAME_LINES_MAX)
    assert second["event"] == f"retrying -1 ({20_000 - SAME_LINES_MAX} like it were left out)"


def test_nor_with_lines_that_all_differ(logs: io.StringIO) -> None:
    configure_logging(environment={}, stream=logs, now_s=Hand())
    for number in range(20_000):
        name = "".join(chr(ord("a") + int(digit)) for digit in str(number))
        structlog.get_logger().warning(f"client {name} is odd")
    assert len(logs.getvalue().splitlines()) == LINES_MAX


def test_who_asks_for_debug_gets_every_line(logs: io.StringIO) -> None:
    configure_logging(environment={"BMQ_LOG_LEVEL": "debug"}, stream=logs, now_s=Hand())
    for _ in range(2 * SAME_LINES_MAX):
        structlog.get_logger().info("again")
    assert len(logs.getvalue().splitlines()) == 2 * SAME_LINES_MAX


def test_an_exception_is_logged_inside_its_line(logs: io.StringIO) -> None:
    configure_logging(environment={"BMQ_LOG_FORMAT": "json"}, stream=logs)
    try:
        raise ValueError("told")
    except ValueError:
        structlog.get_logger().exception("failed")
    (line,) = logs.getvalue().splitlines()
    assert "ValueError: told" in json.loads(line)["exception"]


def test_format_and_level_come_from_the_environment(logs: io.StringIO) -> None:
    configure_logging(environment={"BMQ_LOG_FORMAT": "console", "BMQ_LOG_LEVEL": "warning"}, stream=logs)
    structlog.get_logger().info("not shown")
    structlog.get_logger().warning("shown", left_out=4)
    (line,) = logs.getvalue().splitlines()
    assert "shown" in line
    assert "left_out=4" in line


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [("BMQ_LOG_FORMAT", "xml", "console, json"), ("BMQ_LOG_LEVEL", "loud", "debug, info, warning, error")],
)
def test_a_bad_log_setting_names_key_value_and_remedy(name: str, value: str, remedy: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} '{value}' cannot be used: choose one of {remedy}"):
        configure_logging(environment={name: value})


def test_a_line_is_due_once_a_second_per_key_with_the_count_left_out() -> None:
    limit = RateLimited(interval_s=1.0)
    assert [limit.due("a", now=now) for now in (0.0, 0.1, 0.9)] == [0, None, None]
    assert limit.due("b", now=0.5) == 0
    assert [limit.due("a", now=now) for now in (1.0, 1.5, 2.0)] == [2, None, 1]
    for number in range(KEYS_MAX):
        limit.due(number, now=3.0)
    assert limit.due("a", now=2.1) == 0  # forgotten, so it may speak early: memory is bounded


def test_a_service_runs_on_uvloop_and_gives_its_exit_code() -> None:
    async def main(stop: asyncio.Event) -> int:
        assert isinstance(asyncio.get_running_loop(), uvloop.Loop)
        assert not stop.is_set()
        return 7

    assert run_service(main) == 7


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_stops_and_the_second_ends_at_once(number: signal.Signals) -> None:
    for count, expected in ((1, 3), (2, 128 + number)):
        service = subprocess.Popen(
            [sys.executable, "-c", _SERVICE, str(count)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert service.stdout is not None
        assert service.stdout.readline() == "up\n"
        service.send_signal(number)
        if count == 2:
            assert service.stdout.readline() == "stopping\n"
            service.send_signal(number)
        _, errors = service.communicate(timeout=20)
        assert service.returncode == expected
        assert number.name in errors
        assert "Traceback" not in errors


_SERVICE = """
import asyncio, sys
from bmq.runtime.logging import LIMIT_INTERVAL_S, LINES_MAX, SAME_LINES_MAX, configure_logging
from bmq.runtime.loop import run_service, settle
configure_logging()
async def main(stop):
    settle()
    print("up", flush=True)
    await stop.wait()
    print("stopping", flush=True)
    if sys.argv[1] == "2":
        await asyncio.Event().wait()
    return 3
sys.exit(run_service(main))
"""


def test_loop_lag_and_process_figures_are_among_the_metrics() -> None:
    async def main(stop: asyncio.Event) -> int:
        before = REGISTRY.get_sample_value("bmq_event_loop_lag_seconds_count") or 0
        await until_async(
            lambda: REGISTRY.get_sample_value("bmq_event_loop_lag_seconds_count"),
            "two measures of the lag",
            holds=lambda count: count >= before + 2,
            every_s=0.01,
        )
        return 0

    assert run_service(main) == 0
    text = generate_latest().decode()
    for name in ("bmq_event_loop_lag_seconds_bucket", "process_resident_memory_bytes", "process_open_fds"):
        assert f"\n{name}" in text


def test_the_file_limit_is_raised_to_what_the_machine_allows() -> None:
    code = """
import resource
from bmq.runtime.loop import raise_file_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 1024))
print(raise_file_limit(), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "1024 1024\n"
    )
    assert raise_file_limit() >= 256


def test_elapsed_time_goes_on_with_the_wall_clock() -> None:
    clock = SystemClock()
    began_ms, before_ms = clock.elapsed_ms(), clock.now_ms()
    while clock.elapsed_ms() < began_ms + 20:
        pass
    assert abs((clock.now_ms() - before_ms) - (clock.elapsed_ms() - began_ms)) < 1_000
