"""The admin address under strangers: health is answered whatever they do, and no request of a few bytes costs much more
than they.
"""

import contextlib
import gc
import json
import re
import socket
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any, Final

import pytest
from abuse_node import AbusedNode, abused_node, may_hold_s

from bmq.config.limits import limits_of
from bmq.runtime.loop import settle

TURN_S_MAX = 0.1
KIB = 1 << 10
WITHIN_MS: Final = 1_000
CONNECTIONS: Final = 40
ANSWERED_WITHIN_S = 10
_TEXT: Final = "x" * 30_000
_MANY: Final = 20_000
LIMITS: Final = {
    "admin_connections_max": CONNECTIONS,
    "admin_connections_per_address": CONNECTIONS // 2,
    "admin_request_within_ms": WITHIN_MS,
}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AbusedNode]:
    with abused_node(tmp_path_factory.mktemp("abused"), limits_of(LIMITS)) as running:
        running.have_topics({f"t{n}": 1 for n in range(300)} | {"wide": 2_000})
        thresholds = gc.get_threshold()
        settle()
        yield running
        gc.unfreeze()
        gc.set_threshold(*thresholds)


def asked(node: AbusedNode, path: str, method: str = "GET", body: bytes | None = None) -> tuple[int, int]:
    """(status, bytes answered)."""
    connection = HTTPConnection(*node.admin, timeout=ANSWERED_WITHIN_S)
    try:
        connection.request(method, path, body, {"content-type": "application/json"} if body is not None else {})
        answer = connection.getresponse()
        return answer.status, len(answer.read())
    finally:
        connection.close()


def strangers(node: AbusedNode, count: int, sends: bytes, host: str = "127.0.0.1") -> list[socket.socket]:
    found = []
    for _ in range(count):
        one = socket.create_connection(node.admin, source_address=(host, 0), timeout=ANSWERED_WITHIN_S)
        one.sendall(sends)
        found.append(one)
    return found


def is_closed(one: socket.socket) -> bool:
    """Waits for it."""
    try:
        return one.recv(1) == b""
    except ConnectionError:
        return True


HALF: Final = b"GET /livez HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.parametrize(
    "sends", [b"", HALF, b"POST /v1/topics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"]
)
def test_health_is_answered_while_strangers_hold_more_connections_than_there_may_be(
    node: AbusedNode, sends: bytes
) -> None:
    held = [one for last in range(1, 6) for one in strangers(node, 30, sends, f"127.0.0.{last}")]
    for path in ("/livez", "/readyz", "/metrics", "/v1/cluster", "/v1/topics?limit=1"):
        assert asked(node, path)[0] == 200, path
    for one in held:
        one.close()


def test_a_request_that_does_not_come_is_not_waited_for(node: AbusedNode) -> None:
    [one] = strangers(node, 1, HALF)
    began_s = time.monotonic()
    assert is_closed(one)
    assert time.monotonic() - began_s < 10 * WITHIN_MS / 1000
    one.close()
    [second] = strangers(node, 1, HALF + b"\r\n")
    answer = b""
    while not answer.endswith(b"\r\n\r\nok\n"):
        answer += second.recv(4096)
    second.sendall(b"G")  # the beginning of another one, after which the time for a first one does not begin anew
    assert is_closed(second)
    second.close()


def test_a_whole_request_is_not_cut_off_for_newer_connections(node: AbusedNode) -> None:
    connection = HTTPConnection(*node.admin, timeout=ANSWERED_WITHIN_S)
    connection.request("GET", "/metrics")
    later = HTTPConnection(*node.admin, timeout=ANSWERED_WITHIN_S)
    later.request("GET", "/livez")
    assert later.getresponse().status == 200, "what came before it was read"
    later.close()
    held = strangers(node, 2 * CONNECTIONS, HALF)
    assert connection.getresponse().status == 200
    connection.close()
    for one in held:
        one.close()


def test_first_lines_without_an_end_are_refused(node: AbusedNode) -> None:
    with socket.create_connection(node.admin, timeout=ANSWERED_WITHIN_S) as one:
        answer = b""
        try:
            one.sendall(b"GET / HTTP/1.1\r\nX: " + b"a" * (1 << 20))
            answer = one.recv(100)
        except ConnectionError:
            pass
        assert answer == b"" or answer.startswith(b"HTTP/1.1 4")


FLOODS: Final = {
    "a body in chunks of a byte": b"POST /v1/topics HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    + b"1\r\n \r\n" * 40_000,
    "a header in each four bytes": b"GET /livez HTTP/1.1\r\nHost: x\r\n" + b"a:b\n" * 16_000 + b"\r\n",
    "the same without an end": b"GET /livez HTTP/1.1\r\nHost: x\r\n" + b"a:b\n" * 16_000,
    "many requests at once": HALF.replace(b"livez", b"v1/topics?limit=1000") + b"\r\n" + (HALF + b"\r\n") * 5_000,
    "a large body that is nothing": b"POST /v1/topics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"
    + b"{" * 1_000_000,
}


@pytest.mark.measures
@pytest.mark.parametrize("flood", list(FLOODS))
def test_what_forty_strangers_send_at_once_holds_the_loop_for_a_moment(node: AbusedNode, flood: str) -> None:
    assert asked(node, "/v1/topics")[0] == 200
    node.longest_turn_s()
    held = [one for host in ("127.0.0.2", "127.0.0.3") for one in strangers(node, CONNECTIONS // 2, b"", host)]
    for one in held:
        one.setblocking(False)
        with contextlib.suppress(OSError):
            one.send(FLOODS[flood])
    for _ in range(20):
        assert asked(node, "/livez")[0] == 200
    for one in held:
        one.close()
    assert node.longest_turn_s() < may_hold_s(TURN_S_MAX)


@pytest.mark.parametrize(
    "body", [b"{" * 4_900 + b" " * 900_000, b'{"x": "' + b"y" * 900_000 + b'"}', b"\xff" * 900_000]
)
def test_a_body_that_was_refused_waits_for_no_garbage_collector(node: AbusedNode, body: bytes) -> None:
    def held_bytes() -> int:
        return sum(
            len(value)
            for one in gc.get_objects()
            if isinstance(one, ValueError)
            for value in vars(one).values()
            if isinstance(value, str)
        )

    node.ask(gc.collect)
    node.ask(gc.disable)
    try:
        for _ in range(3):
            assert asked(node, "/v1/topics", "POST", body)[0] == 400
        assert node.ask(held_bytes) < 100_000
    finally:
        node.ask(gc.enable)


def requests_of(node: AbusedNode) -> Iterator[tuple[str, str, bytes | None]]:
    """Each page of the REST API as its own description has it, asked for as much as may be: (method, path, body)."""
    connection = HTTPConnection(*node.admin, timeout=ANSWERED_WITHIN_S)
    connection.request("GET", "/openapi.json")
    described = json.loads(connection.getresponse().read())
    connection.close()
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            takes = operation.get("requestBody")
            small = None if takes is None else b"{}"
            plain, long = _filled(path, "wide"), _filled(path, _TEXT[:8_000])
            yield method.upper(), plain, small
            yield method.upper(), long, small
            for parameter in operation.get("parameters", []):
                if parameter["in"] == "query":
                    name = parameter["name"]
                    several = ["&".join([f"{name}=1"] * count) for count in (100, 1_000)]
                    for value in (_TEXT, _TEXT[:7_000], "1000", *several):
                        yield method.upper(), f"{plain}?{name}={value}", small
            if takes is not None:
                schema = takes["content"]["application/json"]["schema"]
                for body in _bodies(described["components"]["schemas"], schema):
                    yield method.upper(), plain, json.dumps(body).encode()


def _filled(path: str, value: str) -> str:
    """With what its parameters stand for; numbers are 0."""
    return re.sub(r"{(\w+)}", lambda one: value if one[1] in ("topic", "name") else "0", path)


def _bodies(schemas: dict[str, Any], schema: dict[str, Any]) -> Iterator[Any]:
    """Each field of a body as long as may be; and what none has."""
    yield {f"k{n}": "v" for n in range(_MANY)}
    yield [{"name": f"n{n}"} for n in range(_MANY)]
    deep: Any = 1
    for _ in range(300):
        deep = [deep]
    yield deep
    named = schemas.get(schema.get("$ref", "").rpartition("/")[2], schema)
    for field in named.get("properties", {}):
        for value in ("y" * 900_000, [f"t{n}" for n in range(_MANY)], {f"k{n}": "v" for n in range(_MANY)}):
            yield {"name": "x", field: value}


@pytest.mark.measures
def test_no_page_costs_much_more_than_its_request_is_long(node: AbusedNode) -> None:
    found = []
    count = 0
    assert asked(node, "/v1/topics")[0] == 200
    node.longest_turn_s()
    for method, path, body in requests_of(node):
        count += 1
        status, size = asked(node, path, method, body)
        sent = len(path) + len(body or b"")
        turn_s = node.longest_turn_s()
        # What is kept for people who look for a fault has a size of its own; the lists have pages.
        may = 64 * sent + (1 << 20 if path.startswith("/v1/debug/") else 64 * KIB)
        if status == 500 or size > may:
            found.append(f"{method} {path[:60]} with {sent} bytes: {status}, {size} bytes")
        if turn_s > TURN_S_MAX:
            asked(node, path, method, body)  # once more: what is only loaded the first time is no abuse
            turn_s = min(turn_s, node.longest_turn_s())
        if turn_s > may_hold_s(TURN_S_MAX):
            found.append(
                f"{method} {path[:60]} with {sent} bytes holds the loop for {turn_s * 1000:.0f} ms: "
                f"{(body or b'')[:50]!r}"
            )
    assert count > 100
    assert not found, "\n" + "\n".join(found)
