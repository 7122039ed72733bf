"""Strangers that never stop sending to a `bmq up` in its own process: health is answered meanwhile, and so are
clients.
"""

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Final

import pytest
from abuse_process import BmqProcess, PatientClient, bmq_process
from tests.waiting import let_pass

STRANGERS: Final = 60
FLOOD_S: Final = 2.0
ASKED: Final = 10
ANSWERED_WITHIN_S: Final = 1.0
"""What a kubelet gives a probe. What other processes of this machine took of the processor meanwhile is not counted."""
_POST: Final = b"POST /v1/topics HTTP/1.1\r\nHost: x\r\n"
FLOODS: Final = {
    "bodies in chunks of a byte": _POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 40_000,
    "headers of four bytes": b"GET /livez HTTP/1.1\r\nHost: x\r\n" + b"a:b\n" * 15_500 + b"\r\n",
    "requests without a pause": b"GET /v1/topics?limit=1000 HTTP/1.1\r\nHost: x\r\n\r\n" * 5_000,
}


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BmqProcess]:
    with bmq_process(tmp_path_factory.mktemp("process"), topics={f"t{n}": 1 for n in range(200)}) as running:
        yield running


def admin_of(process: BmqProcess) -> tuple[str, int]:
    host, _, port = process.started.admin.removeprefix("http://").rpartition(":")
    return host, int(port)


@contextlib.contextmanager
def flood(address: tuple[str, int], sends: bytes) -> Iterator[None]:
    """From four addresses; who is cut off comes again."""
    over = threading.Event()
    thread = threading.Thread(target=_flood, args=(address, sends, over), name="flood")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _flood(address: tuple[str, int], sends: bytes, over: threading.Event) -> None:
    with selectors.DefaultSelector() as chosen:
        for n in range(STRANGERS):
            chosen.register(_stranger(address, n), selectors.EVENT_WRITE, [n, 0])
        while not over.is_set():
            for key, _ in chosen.select(0.1):
                one, place = key.fileobj, key.data
                assert isinstance(one, socket.socket)
                try:
                    place[1] = (place[1] + one.send(memoryview(sends)[place[1] :])) % len(sends)
                except OSError:
                    chosen.unregister(one)
                    one.close()
                    chosen.register(_stranger(address, place[0]), selectors.EVENT_WRITE, [place[0], 0])
            over.wait(0.001)
        for key in list(chosen.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()


def _stranger(address: tuple[str, int], number: int) -> socket.socket:
    one = socket.socket()
    one.setblocking(False)
    one.bind((f"127.0.0.{2 + number % 4}", 0))
    one.connect_ex(address)
    return one


@pytest.mark.measures
@pytest.mark.parametrize("sends", list(FLOODS))
def test_health_is_answered_in_time_while_sixty_strangers_send_all_they_can(process: BmqProcess, sends: str) -> None:
    with PatientClient(process.kafka) as patient, flood(admin_of(process), FLOODS[sends]):
        let_pass(FLOOD_S, "they send before anybody asks")
        took_s = []
        for _ in range(ASKED):
            began_s, waited_s = time.perf_counter(), process.waited_s()
            connection = HTTPConnection(*admin_of(process), timeout=10)
            connection.request("GET", "/livez")
            assert connection.getresponse().status == 200
            connection.close()
            took_s.append(time.perf_counter() - began_s - (process.waited_s() - waited_s))
        before, waited_s = patient.so_far(), process.waited_s()
        patient.next_ones(3)
        longest_s = max(patient.took_s[before:]) - (process.waited_s() - waited_s)
    assert max(took_s) < ANSWERED_WITHIN_S
    assert longest_s < ANSWERED_WITHIN_S
