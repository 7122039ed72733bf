"""What the log says of requests."""

import asyncio
from typing import Any

import pytest
import structlog
from one_connection import codes, run
from proxy_in_memory import Client, Running, batch, fetch_request
from tests.waiting import until_async

from bmq.errors import PolicyViolation
from bmq.wire.error_codes import ErrorCode
from bmq_proxy.settings import ProxySettings

pytestmark = pytest.mark.usefixtures("both_loops")


def test_a_bug_that_every_request_meets_is_logged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(proxy: Running, client: Client) -> None:
        def fails(*_: Any, **__: Any) -> Any:
            raise RuntimeError("a bug")

        monkeypatch.setattr(proxy.owner, "append", fails)
        with structlog.testing.capture_logs() as logs:
            for _ in range(50):
                client.send_produce("orders", {0: batch(b"a"), 1: batch(b"b")})
            for _ in range(50):
                assert codes((await client.receive())[1]) == [ErrorCode.unknown_server_error] * 2
        assert [(line["event"], line["left_out"]) for line in logs] == [
            ("append failed", 0),
            ("request was answered with an error", 0),
        ]
        assert {line["request_id"] for line in logs} == {"c1-1"}

    run(test)


def test_requests_that_are_slow_or_time_out_are_logged_with_an_id_that_the_client_knows_too() -> None:
    async def test(proxy: Running, client: Client) -> None:
        other = await proxy.connect()
        other.client_id = "orders-writer"
        await other.ask(3, 12, {"topics": None})
        proxy.owner.hold = True
        with structlog.testing.capture_logs() as logs:
            slow = other.send_produce("orders", {0: batch(b"a")})
            await until_async(lambda: len(proxy.owner.held) == 1, "one append at the owner")
            sent_s = asyncio.get_running_loop().time()
            await until_async(lambda: asyncio.get_running_loop().time() > sent_s + 0.5, "500 ms to pass")
            proxy.owner.let_go()
            assert codes((await other.receive())[1]) == [0]
            late = other.send_produce("orders", {0: batch(b"b")}, timeout_ms=1)
            assert codes((await other.receive())[1]) == [ErrorCode.request_timed_out]
            waits = client.send(1, 11, fetch_request("orders", 1, 0, max_wait_ms=80, min_bytes=1))
            assert (await client.receive())[0] == waits
        told = [(line["event"], line["request_id"], line["api"], line["error"], line["client_id"]) for line in logs]
        assert told == [
            ("request was slow", f"c2-{slow}", "Produce", "none", "orders-writer"),
            ("request was answered with an error", f"c2-{late}", "Produce", "request_timed_out", "orders-writer"),
        ]
        assert logs[0]["took_ms"] >= 500

    run(test, ProxySettings(slow_request_ms=500, write_timeout_ms_min=0))


def test_what_clients_cause_again_and_again_is_one_line_of_each_kind() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.controller.error = PolicyViolation("not here")
        with structlog.testing.capture_logs() as logs:
            for number in range(30):
                await client.ask(22, 0, {"transactional_id": f"t{number}", "transaction_timeout_ms": 1})
                await client.ask(3, 4, {"topics": [{"name": f"wished-{number}"}], "allow_auto_topic_creation": True})
                client.client_id = f"lane=nope{number}"
                await client.ask(3, 4, {"topics": []})
                client.client_id = "test"
        events = [line["event"] for line in logs]
        assert len(events) == len(set(events)) == 3, events

    run(test)
