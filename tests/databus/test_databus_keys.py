"""Requests with an Idempotency-Key on an accepted channel whose sidecar is killed: one message, one answer."""

import json
import threading
from http.client import HTTPException
from typing import Any

from compat_server import Bmq
from databus_process import Databus
from test_databus import values
from tests.waiting import until


def post(databus: Databus, key: str, texts: list[str]) -> tuple[int, Any]:
    lines = "\n".join(json.dumps({"text": text}) for text in texts).encode()
    return databus.post("clicks", lines, media="application/x-ndjson", headers={"idempotency-key": key})


def test_what_comes_again_after_a_kill_has_its_answer_and_is_not_written_again(databus: Databus) -> None:
    databus.start()
    mixed = b'{"text": "a"}\nno json\n{"text": "b"}'
    first = databus.post("clicks", mixed, media="application/x-ndjson", headers={"idempotency-key": "one"})
    assert (first[0], [one["status"] for one in first[1]["results"]]) == (207, [202, 400, 202])
    assert post(databus, "two", ["c"])[0] == 202
    for end in (databus.kill9, databus.stop):
        end()
        databus.start()
        again = databus.post("clicks", mixed, media="application/x-ndjson", headers={"idempotency-key": "one"})
        assert again == first
        status, answer = post(databus, "two", ["another"])
        assert (status, "came with another request" in answer["error"]) == (422, True)
        assert databus.value("bmq_databus_spool_messages", channel="clicks") == 3
        assert databus.value("bmq_databus_answered_again_total", channel="clicks") == 1


def test_each_request_that_is_repeated_until_it_is_answered_is_written_once_though_the_sidecar_is_killed(
    bmq: Bmq, databus: Databus
) -> None:
    """The cluster is away meanwhile: what a kill between it and the note of it sends twice is another matter."""
    databus.start()
    told: dict[str, tuple[int, Any]] = {}
    over = threading.Event()

    def write(writer: int) -> None:
        n = 0
        while not over.is_set():
            key, n = f"{writer}-{n}", n + 1
            while key not in told:
                try:
                    told[key] = post(databus, key, [f"{key}a", f"{key}b"])
                except (OSError, HTTPException, ValueError):  # killed, or not yet started again
                    if over.wait(0.05):  # all at once and without a pause they keep the processor from its start
                        return

    writers = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for one in writers:
        one.start()
    for _ in range(6):
        before = len(told)
        until(lambda before=before: len(told) > before + 40, "requests to be answered")  # type: ignore[misc]
        databus.kill9()
        databus.start()
    before = len(told)
    until(lambda: len(told) > before + 40, "requests to be answered")
    over.set()
    for one in writers:
        one.join()
    databus.kill9()
    databus.start()
    assert {status for status, _ in told.values()} == {202}
    some = [*told][-300:]
    assert [post(databus, key, [f"{key}a", f"{key}b"]) for key in some] == [told[key] for key in some]
    bmq.start()
    wanted = sorted(f"{key}{part}" for key in told for part in "ab")
    assert sorted(values(bmq, "clicks-raw", len(wanted))) == wanted
