"""The front of the API: who may, what is answered here, what is handed on. Without the pages, which it does not
know.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

import pytest
import structlog
from structlog.testing import capture_logs
from tests.waiting import until_async

from bmq.errors import ControllerUnavailable
from bmq.naming.bearer import watching_token
from bmq.roles.admin import AdminReply, AdminRequest
from bmq_controller.api import front as front_page
from bmq_controller.api import groups
from bmq_controller.api.asgi import ADDRESS, BODIES_BYTES_MAX, BODY_BYTES_MAX, PARAMETERS_MAX, TARGET_BYTES_MAX
from bmq_controller.api.coordinators import GroupListed
from bmq_controller.api.front import HANDED_ON_AT_ONCE, REQUESTS_AT_ONCE, REQUESTS_PER_ADDRESS, AdminFront, FrontState
from bmq_controller.api.problems import Refused

LOCAL, REMOTE = "127.0.0.1", "10.1.2.3"


class Tokens:
    def __init__(self, *known: str) -> None:
        self.known = known

    async def admits(self, presented: str) -> bool:
        return presented in self.known

    async def admits_watch(self, presented: str) -> bool:
        return presented in (*self.known, *map(watching_token, self.known))


class Sources:
    """Of a node that does not lead: what it hands on is kept."""

    node_id = 7

    def __init__(self) -> None:
        self.handed_on: list[AdminRequest] = []
        self.leader: Callable[[AdminRequest], Awaitable[AdminReply]] = self.accept

    def leading(self) -> None:
        return None

    async def ask_leader(self, request: AdminRequest) -> AdminReply:
        self.handed_on.append(request)
        return await self.leader(request)

    async def accept(self, request: AdminRequest) -> AdminReply:
        return AdminReply(status=299, headers={"etag": '"v"'}, body=b"from the leader")


def front_of(sources: Sources | None, *, tokens: Tokens | None = None) -> AdminFront:
    return AdminFront(FrontState(sources=sources, tokens=tokens))  # type: ignore[arg-type]


async def ask(
    front: AdminFront,
    method: str,
    path: str,
    *,
    client: str = LOCAL,
    body: bytes = b"",
    headers: dict[str, str] | None = None,
    rest: asyncio.Event | None = None,
    query: str = "",
) -> tuple[int, dict[str, str], bytes]:
    """`rest`: the body ends when that is set."""
    sent: list[Any] = []
    messages = [{"type": "http.request", "body": body, "more_body": rest is not None}]

    async def receive() -> Any:
        if messages:
            return messages.pop(0)
        if rest is not None:
            await rest.wait()
            return {"type": "http.request", "body": b"", "more_body": False}
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    given = {"host": "127.0.0.1:9080", **(headers or {})}
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        "client": (client, 1),
    }
    await front(scope, receive, send)
    return (
        sent[0]["status"],
        {name.decode(): value.decode() for name, value in sent[0]["headers"]},
        b"".join(part["body"] for part in sent[1:]),
    )


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())  # type: ignore[arg-type]


def test_the_root_says_where_things_are_to_everybody_and_from_the_first_moment_on() -> None:
    async def test() -> None:
        for front in (front_of(None), front_of(Sources(), tokens=Tokens("a-token-that-is-long"))):
            status, headers, body = await ask(front, "GET", "/", client=REMOTE)
            assert (status, headers["content-type"]) == (200, "text/plain; charset=utf-8")
            assert [line.split()[0] for line in body.decode().splitlines()[1:]] == [
                "/livez",
                "/readyz",
                "/metrics",
                "/docs",
                "/openapi.json",
                "/v1/...",
            ]
            assert not front.has_pages
            assert (await ask(front, "HEAD", "/"))[::2] == (200, b"")
            for path in ("/livez", "/metrics"):
                assert (await ask(front, "GET", path))[0] == 200

    asyncio.run(test())


def test_health_and_metrics_are_open_from_the_first_moment_on() -> None:
    async def test() -> None:
        front = front_of(None, tokens=Tokens("secret-secret-secret"))
        assert (await ask(front, "GET", "/livez", client=REMOTE))[0] == 200
        assert (await ask(front, "GET", "/readyz", client=REMOTE))[::2] == (503, b"starting\n")
        assert b"# HELP" in (await ask(front, "GET", "/metrics", client=REMOTE))[2]
        assert (await ask(front, "HEAD", "/livez"))[2] == b""
        front.state.tokens = None
        assert (await ask(front, "GET", "/v1/topics"))[0] == 503

    run(test)


def test_readiness_names_what_is_missing() -> None:
    async def test() -> None:
        front = front_of(Sources())
        assert (await ask(front, "GET", "/readyz"))[0] == 200
        front.state.readiness.append(lambda: "taken over")
        assert (await ask(front, "GET", "/readyz"))[::2] == (503, b"taken over\n")

    run(test)


def test_a_node_that_does_not_lead_hands_a_request_on_as_it_came() -> None:
    async def test() -> None:
        sources = Sources()
        headers = {"if-match": '"v"', "content-type": "application/json", "authorization": "Bearer t", "cookie": "no"}
        status, got, body = await ask(front_of(sources), "PATCH", "/v1/configs", body=b"{}", headers=headers)
        assert (status, got["etag"], body) == (299, '"v"', b"from the leader")
        [request] = sources.handed_on
        assert (request.method, request.path, request.body, request.trusted) == ("PATCH", "/v1/configs", b"{}", True)
        assert request.headers == {
            **{name: value for name, value in headers.items() if name != "cookie"},
            "x-request-id": "1",
            ADDRESS: LOCAL,
        }

    run(test)


def test_head_is_answered_as_get_is_without_the_body() -> None:
    async def test() -> None:
        sources = Sources()
        front = front_of(sources)
        status, headers, body = await ask(front, "HEAD", "/v1/topics", client=REMOTE)
        assert (status, headers["content-length"], body) == (299, str(len(b"from the leader")), b"")
        assert [request.method for request in sources.handed_on] == ["GET"]

    asyncio.run(test())


def test_without_a_leader_the_answer_is_a_clear_503() -> None:
    async def test() -> None:
        sources = Sources()

        async def nobody(_: AdminRequest) -> AdminReply:
            raise ControllerUnavailable("no controller leads that this node knows of")

        sources.leader = nobody
        status, headers, body = await ask(front_of(sources), "GET", "/v1/nodes")
        problem = json.loads(body)
        assert (status, problem["code"], headers["retry-after"]) == (503, "NoLeader", "1")
        assert headers["content-type"] == "application/problem+json"
        assert "no controller leads" in problem["why"]

    run(test)


def test_what_was_handed_on_is_not_handed_on_again() -> None:
    async def test() -> None:
        sources = Sources()
        reply = await front_of(sources).answer(AdminRequest(method="GET", path="/v1/nodes", trusted=True))
        assert (reply.status, json.loads(reply.body)["code"]) == (503, "NoLeader")
        assert not sources.handed_on

    run(test)


LONG = [
    ("/v1/topics", "&".join(["a=1"] * (PARAMETERS_MAX + 1)), "more than 100 parameters"),
    ("/v1/topics", "&" * PARAMETERS_MAX, "more than 100 parameters"),
    ("/v1/topics", "limit=" + "%41" * 2_800, "more than 8192 bytes"),
    ("/v1/watch/channels", "a=1&" * 15_000, "more than 8192 bytes"),
    ("/v1/watch/channels", "after=1&" * PARAMETERS_MAX, "more than 100 parameters"),
    ("/v1/self", "&" * 1_000, "more than 100 parameters"),
    ("/docs", "a=1&" * 1_000, "more than 100 parameters"),
    ("/openapi.json", "a" * 9_000, "more than 8192 bytes"),
    ("/livez", "a" * 9_000, "more than 8192 bytes"),
    ("/v1/topics/" + "\N{REPLACEMENT CHARACTER}" * TARGET_BYTES_MAX, "", "more than 8192 bytes"),
    ("/" * (TARGET_BYTES_MAX - 2), "a=1", "more than 8192 bytes"),
]


@pytest.mark.parametrize(("path", "query", "why"), LONG, ids=range(len(LONG)))
def test_a_long_path_or_query_is_refused_before_anything_looks_into_it(
    path: str, query: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        sources = Sources()
        for name in ("misread", "parse_qs", "_load", "subject_of"):
            monkeypatch.setattr(front_page, name, parse)
        for front in (front_of(sources), front_of(sources, tokens=Tokens("secret-secret-secret")), front_of(None)):
            status, headers, body = await ask(front, "GET", path, query=query)
            problem = json.loads(body)
            assert (status, problem["code"], headers["x-request-id"]) == (414, "AddressTooLong", problem["request_id"])
            assert why in problem["detail"]
            assert len(body) < 1_000
            handed_on = await front.answer(AdminRequest(method="GET", path=path, query=query, trusted=True))
            assert (handed_on.status, json.loads(handed_on.body)["code"]) == (414, "AddressTooLong")
        assert not sources.handed_on

    def parse(*_: object) -> NoReturn:
        raise AssertionError("it was looked into")

    run(test)


@pytest.mark.parametrize("query", ["a=1&" * (PARAMETERS_MAX - 1), "a" * (TARGET_BYTES_MAX - len("/v1/topics"))])
def test_a_path_and_query_that_are_just_short_enough_are_looked_into(query: str) -> None:
    async def test() -> None:
        sources = Sources()
        assert (await ask(front_of(sources), "GET", "/v1/topics", query=query))[0] == 299
        assert sources.handed_on

    run(test)


@pytest.mark.parametrize("given", [None, "", "Basic c2VjcmV0", "Bearer wrong", "Bearer", "secret-secret-secret"])
def test_a_token_has_to_be_presented_where_there_are_tokens(given: str | None) -> None:
    async def test() -> None:
        sources = Sources()
        headers = {} if given is None else {"authorization": given}
        status, got, body = await ask(
            front_of(sources, tokens=Tokens("secret-secret-secret")), "GET", "/v1/topics", headers=headers
        )
        assert (status, got["www-authenticate"]) == (401, 'Bearer realm="bmq"')
        assert json.loads(body)["code"] == "Unauthenticated"
        assert not sources.handed_on

    run(test)


def test_who_presents_a_token_may_change_something_from_anywhere() -> None:
    async def test() -> None:
        sources = Sources()
        front = front_of(sources, tokens=Tokens("secret-secret-secret"))
        headers = {"authorization": "bearer secret-secret-secret", "host": "bmq.example"}
        assert (await ask(front, "DELETE", "/v1/topics/a", client=REMOTE, headers=headers))[0] == 299
        assert sources.handed_on[0].trusted

    run(test)


def test_the_node_that_answers_asks_for_its_own_token_whatever_the_other_node_asked_for() -> None:
    async def test() -> None:
        front = front_of(Sources(), tokens=Tokens("secret-secret-secret"))
        assert (await front.answer(AdminRequest(method="GET", path="/v1/nodes", trusted=True))).status == 401

    run(test)


@pytest.mark.parametrize(
    ("client", "host", "trusted"),
    [
        (LOCAL, "127.0.0.1:9080", True),
        ("::1", "[::1]:9080", True),
        (LOCAL, "localhost:9080", True),
        (LOCAL, "elsewhere.example:9080", False),
        (LOCAL, "[::1", False),
        (REMOTE, "127.0.0.1:9080", False),
    ],
)
def test_without_tokens_only_this_machine_is_trusted_and_no_browser_that_was_led_here(
    client: str, host: str, *, trusted: bool
) -> None:
    async def test() -> None:
        sources = Sources()
        await ask(front_of(sources), "DELETE", "/v1/topics/a", client=client, headers={"host": host})
        assert sources.handed_on[0].trusted is trusted

    run(test)


def test_without_tokens_who_is_not_trusted_changes_nothing() -> None:
    async def test() -> None:
        front = front_of(Sources())
        reply = await front.answer(AdminRequest(method="POST", path="/v1/topics"))
        assert (reply.status, json.loads(reply.body)["code"]) == (403, "NoTokens")

    run(test)


def test_a_page_of_another_site_is_refused() -> None:
    async def test() -> None:
        sources = Sources()
        front = front_of(sources)
        assert (await ask(front, "POST", "/v1/topics", headers={"origin": "http://evil.example"}))[0] == 403
        assert (await ask(front, "POST", "/v1/topics", headers={"origin": "http://[::1"}))[0] == 403
        assert not sources.handed_on
        assert (await ask(front, "POST", "/v1/topics", headers={"origin": "http://127.0.0.1:9080"}))[0] == 299

    run(test)


def test_a_body_that_is_too_large_is_refused_unread() -> None:
    async def test() -> None:
        sources = Sources()
        assert (await ask(front_of(sources), "POST", "/v1/topics", body=b"x" * (BODY_BYTES_MAX + 1)))[0] == 413
        assert not sources.handed_on

    run(test)


def test_bodies_that_one_address_never_ends_leave_room_for_those_of_others() -> None:
    async def test() -> None:
        front, gate = front_of(Sources()), asyncio.Event()
        dripping = [
            asyncio.create_task(ask(front, "POST", "/v1/topics", body=b" " * BODY_BYTES_MAX, client=REMOTE, rest=gate))
            for _ in range(64)
        ]
        await asyncio.sleep(0)
        for client in (LOCAL, "10.1.2.4"):
            assert (await ask(front, "POST", "/v1/topics", body=b" " * BODY_BYTES_MAX, client=client))[0] == 299
        gate.set()
        assert [status for status, _, _ in await asyncio.gather(*dripping)].count(
            503
        ) >= BODIES_BYTES_MAX // BODY_BYTES_MAX
        assert front._bodies.left == BODIES_BYTES_MAX

    run(test)


def test_the_leader_hears_whose_request_was_handed_on_whatever_that_says_of_itself() -> None:
    async def test() -> None:
        sources = Sources()
        front = front_of(sources)
        await ask(front, "GET", "/v1/topics", client="10.1.2.3", headers={"x-forwarded-for": "10.9.9.9"})
        assert [request.headers[ADDRESS] for request in sources.handed_on] == ["10.1.2.3"]

    run(test)


def test_groups_that_one_address_asks_for_hold_up_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen of them, of a thousand offsets each, held up everybody's for seconds."""

    async def test() -> None:
        gate = asyncio.Event()

        async def describe(_: object, group_id: str, **__: object) -> NoReturn:
            if group_id == "large":
                await gate.wait()
            raise Refused("UnknownGroup", f"there is no group {group_id}", "list the groups")

        monkeypatch.setattr(groups, "describe_group", describe)
        sources = Sources()
        sources.leading = object  # type: ignore[assignment, method-assign]
        front = front_of(sources)
        greedy = [asyncio.create_task(ask(front, "GET", "/v1/groups/large", client="10.0.0.1")) for _ in range(16)]
        await asyncio.wait(greedy, timeout=0.5)
        async with asyncio.timeout(10):
            assert (await ask(front, "GET", "/v1/groups/small", client="10.0.0.2"))[0] == 404
        assert not any(one.done() for one in greedy)
        gate.set()
        assert {status for status, _, _ in await asyncio.gather(*greedy)} == {404}

    run(test)


def test_lists_of_groups_are_made_once_for_all_who_ask_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each was made of all groups there are: sixteen of 60,000 took 180 MiB, and the processor."""

    async def test() -> None:
        gate, begun = asyncio.Event(), 0

        async def list_all(_: object) -> list[GroupListed]:
            nonlocal begun
            begun += 1
            await gate.wait()
            return [GroupListed(name, "Empty", "") for name in ("b", "a", "c")]

        monkeypatch.setattr(groups, "list_groups", list_all)
        sources = Sources()
        sources.leading = object  # type: ignore[assignment, method-assign]
        front = front_of(sources)
        asked = [asyncio.create_task(ask(front, "GET", "/v1/groups", client="10.0.0.1"))]
        await until_async(lambda: begun, "the first list")
        asked += [asyncio.create_task(ask(front, "GET", "/v1/groups", client=f"10.0.0.{n % 4}")) for n in range(32)]
        await asyncio.wait(asked, timeout=0.5)
        gate.set()
        names = {
            tuple(one["group_id"] for one in json.loads(body)["items"]) for _, _, body in await asyncio.gather(*asked)
        }
        assert (begun, names) == (2, {("a", "b", "c")})

    run(test)


def test_too_many_requests_at_once_are_refused_and_health_is_not() -> None:
    async def test() -> None:
        sources, gate = Sources(), asyncio.Event()

        async def waits(request: AdminRequest) -> AdminReply:
            await gate.wait()
            return await sources.accept(request)

        sources.leader = waits
        front = front_of(sources)
        waiting = [asyncio.create_task(ask(front, "GET", "/v1/nodes")) for _ in range(REQUESTS_PER_ADDRESS)]
        assert (await asyncio.create_task(ask(front, "GET", "/v1/nodes")))[0] == 503
        others = [f"10.1.2.{n // REQUESTS_PER_ADDRESS}" for n in range(REQUESTS_AT_ONCE - REQUESTS_PER_ADDRESS)]
        waiting += [asyncio.create_task(ask(front, "GET", "/v1/nodes", client=host)) for host in others]
        await until_async(lambda: len(sources.handed_on) >= REQUESTS_AT_ONCE, "as many as may be at once", every_s=0)
        assert (await ask(front, "GET", "/v1/nodes", client="10.1.3.1"))[0] == 503
        assert (await ask(front, "GET", "/livez"))[0] == 200
        gate.set()
        assert {status for status, _, _ in await asyncio.gather(*waiting)} == {299}
        assert (await ask(front, "GET", "/v1/nodes"))[0] == 299

    run(test)


def test_one_request_begins_in_each_turn_of_the_loop_by_turns_of_addresses() -> None:
    async def test() -> None:
        sources, turn, began = Sources(), 0, list[tuple[int, str]]()

        async def note(request: AdminRequest) -> AdminReply:
            began.append((turn, request.path))
            return await sources.accept(request)

        sources.leader = note
        front = front_of(sources)
        greedy = [
            asyncio.create_task(ask(front, "GET", "/greedy", client="10.0.0.1")) for _ in range(REQUESTS_PER_ADDRESS)
        ]
        modest = asyncio.create_task(ask(front, "GET", "/modest", client="10.0.0.2"))
        while not all(one.done() for one in (*greedy, modest)):
            turn += 1
            await asyncio.sleep(0)
        turns = [turn for turn, _ in began]
        assert len(set(turns)) == len(turns) == REQUESTS_PER_ADDRESS + 1
        assert [path for _, path in began].index("/modest") <= 1

    run(test)


def test_other_nodes_requests_are_bounded_too() -> None:
    async def test() -> None:
        front, gate = front_of(Sources(), tokens=Tokens("secret-secret-secret")), asyncio.Event()

        class Waiting:
            async def admits(self, presented: str) -> bool:
                await gate.wait()
                return False

            async def admits_watch(self, presented: str) -> bool:
                return False

        front.state.tokens = Waiting()
        request = AdminRequest(method="GET", path="/v1/self", trusted=True)
        waiting = [asyncio.create_task(front.answer(request)) for _ in range(HANDED_ON_AT_ONCE)]
        await asyncio.sleep(0)
        refused = await front.answer(request)
        assert (refused.status, json.loads(refused.body)["code"]) == (503, "TooManyRequests")
        gate.set()
        assert {reply.status for reply in await asyncio.gather(*waiting)} == {401}

    run(test)


def test_a_request_keeps_its_id_from_the_client_to_the_leader_and_back() -> None:
    async def test() -> None:
        sources = Sources()
        front = front_of(sources)
        _, got, _ = await ask(front, "GET", "/v1/nodes", headers={"x-request-id": "deploy-7/a"})
        assert got["x-request-id"] == sources.handed_on[-1].headers["x-request-id"] == "deploy-7/a"
        made = []
        for unusable in ("", "a b", "x" * 129, "line\nfeed", "ü"):
            _, got, _ = await ask(front, "GET", "/v1/nodes", headers={"x-request-id": unusable} if unusable else {})
            assert got["x-request-id"] == sources.handed_on[-1].headers["x-request-id"] != unusable
            made.append(got["x-request-id"])
        assert len(set(made)) == len(made)

    run(test)


def test_what_fails_is_logged_and_answered_with_the_requests_id() -> None:
    async def test() -> None:
        sources = Sources()

        async def dead(request: AdminRequest) -> AdminReply:
            structlog.get_logger().info("on the way")
            raise ControllerUnavailable("gone")

        sources.leader = dead
        front = front_of(sources)
        with capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
            status, got, body = await ask(front, "POST", "/v1/topics", headers={"x-request-id": "mine"})
            await ask(front, "POST", "/v1/topics", headers={"x-request-id": "again"})
        problem = json.loads(body)
        assert (status, got["x-request-id"], problem["request_id"], problem["code"]) == (
            503,
            "mine",
            "mine",
            "NoLeader",
        )
        assert [(line["event"], line["request_id"]) for line in lines] == [
            ("on the way", "mine"),
            ("admin request failed", "mine"),
            ("on the way", "again"),
        ], "those that follow at once are counted"
        assert (lines[1]["method"], lines[1]["path"], lines[1]["status"]) == ("POST", "/v1/topics", 503)
        assert structlog.contextvars.get_contextvars() == {}

    run(test)


def test_of_long_paths_that_fail_one_line_is_logged_and_not_the_whole_path_kept() -> None:
    async def test() -> None:
        sources = Sources()

        async def dead(request: AdminRequest) -> AdminReply:
            raise ControllerUnavailable("gone")

        sources.leader = dead
        front = front_of(sources)
        with capture_logs() as lines:
            for number in range(3):
                path = "/v1/topics/" + "x" * 8_000 + str(number)
                status, _, _ = await ask(front, "GET", path)
                assert status == 503
        assert [line["path"] for line in lines] == ["/v1/topics/" + "x" * 189]

    run(test)


def test_a_request_that_another_node_hands_on_is_logged_with_the_same_id() -> None:
    async def test() -> None:
        with capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
            reply = await front_of(Sources()).answer(
                AdminRequest(method="GET", path="/v1/nodes", headers={"x-request-id": "from-afar"})
            )
        assert reply.status == 503 and json.loads(reply.body)["request_id"] == "from-afar"
        assert [(line["event"], line["request_id"]) for line in lines] == [("admin request failed", "from-afar")]

    run(test)


@pytest.mark.parametrize("path", ["/metrics", "/v1/groups/of-many-offsets"])
def test_large_pages_that_nobody_takes_are_few_and_go_after_a_while(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setattr(front_page, "LARGE_BYTES_MAX", 1_600_000)
    monkeypatch.setattr(front_page, "LARGE_PER_ADDRESS", 2)
    monkeypatch.setattr(front_page, "TAKEN_WITHIN_S", 0.2)

    async def large(request: AdminRequest) -> AdminReply:
        return AdminReply(status=200, body=b"x" * 300_000)

    async def test() -> None:
        sources = Sources()
        sources.leader = large
        front = front_of(sources)
        front.state.exposition = lambda: b"x" * 300_000
        handed: list[int] = []

        async def stuck(client: str) -> None:
            sent: list[Any] = []

            async def send(message: Any) -> None:
                sent.append(message)
                handed.append(len(message.get("body", b"")))
                if message["type"] == "http.response.body" and message.get("more_body"):
                    await asyncio.Event().wait()

            scope = {
                "type": "http",
                "method": "GET",
                "path": path,
                "query_string": b"",
                "headers": [],
                "client": (client, 1),
            }
            await front(scope, whole, send)

        async def whole() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        strangers = [asyncio.ensure_future(stuck(REMOTE)) for _ in range(20)]
        await until_async(
            lambda: sum(one.done() for one in strangers), "18 strangers to be answered", holds=lambda count: count >= 18
        )
        assert max(handed) <= 1 << 16
        assert front._large_bytes == {REMOTE: 600_000}
        status, _, body = await ask(front, "GET", path)
        assert (status, len(body)) == (200, 300_000)
        assert (await ask(front, "GET", path, client=REMOTE))[0] == 503
        await asyncio.gather(*strangers)
        assert not front._large_bytes
        assert (await ask(front, "GET", path, client=REMOTE))[0] == 200

    run(test)
