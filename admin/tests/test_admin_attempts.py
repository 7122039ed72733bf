"""Whom a request goes to and when again, without a network; and that both clients send and read the same."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from api_server import Answer, ok, problem, serving

from bmq_admin.answers import Answered
from bmq_admin.attempts import PAUSE_S, Outcome, Pause, Send, attempts
from bmq_admin.blocking import BlockingAdminClient
from bmq_admin.client import AdminClient
from bmq_admin.errors import AdminError, AdminProblem, NotBmq, NotReached, TimedOut

NO_LEADER = AdminProblem(status=503, code="NoLeader", what="it", why="so", remedy="wait")
REFUSED = AdminProblem(status=409, code="NoHeir", what="it", why="so", remedy="mend it")


def run(outcomes: list[Outcome], *, urls: tuple[str, ...] = ("a", "b"), patience_s: float = 0.0) -> tuple[str, Any]:
    """The addresses and pauses (`.`) of a course that meets these outcomes, and its end."""
    course = attempts(urls, patience_s=patience_s)
    steps, outcome = "", None
    while True:
        try:
            step = course.send(outcome)
        except StopIteration as done:
            return steps, done.value.document
        except AdminError as error:
            return steps, error
        match step:
            case Send(url=url):
                steps, outcome = steps + url, outcomes.pop(0)
            case Pause(seconds=seconds):
                assert seconds == PAUSE_S
                steps, outcome = steps + ".", None


def test_the_next_address_is_asked_where_one_is_not_reached_and_the_first_failure_is_told_where_none_is() -> None:
    lost, late = NotReached("a", "refused"), TimedOut("b")
    assert run([lost, Answered(1)]) == ("ab", 1)
    assert run([lost, late]) == ("ab", lost)
    assert run([REFUSED]) == ("a", REFUSED)
    foreign = NotBmq("a", "", status=302)
    assert run([foreign]) == ("a", foreign), "it may have done what was asked"


def test_who_is_patient_asks_again_what_is_a_matter_of_a_moment_and_not_for_ever() -> None:
    assert run([NO_LEADER, Answered(1)], patience_s=1) == ("a.a", 1)
    assert run([NO_LEADER, REFUSED], patience_s=1) == ("a.a", REFUSED)
    assert run([NO_LEADER] * 3, patience_s=0.5) == ("a.a.a", NO_LEADER)
    assert run([NO_LEADER]) == ("a", NO_LEADER)


def blocking(url: str, use: Callable[[Any], Any]) -> Any:
    return use(BlockingAdminClient([url], token="t-o-k-e-n", timeout_s=5, sleep=lambda _: None))


def awaited(url: str, use: Callable[[Any], Any]) -> Any:
    async def run() -> Any:
        client = AdminClient(url, token="t-o-k-e-n", timeout_s=5)
        try:
            return await use(client)
        finally:
            await client.close()

    return asyncio.run(run())


@pytest.mark.parametrize("face", [blocking, awaited])
@pytest.mark.parametrize(
    ("use", "sent"),
    [
        (
            lambda client: client.get("topics", "a/b?c", limit=5, moving=True, after=None),
            ("GET", "/v1/topics/a%2Fb%3Fc?limit=5&moving=true", None, b""),
        ),
        (lambda client: client.post("nodes", 7, "drain"), ("POST", "/v1/nodes/7/drain", None, b"")),
        (
            lambda client: client.post("topics", body={"name": "ä"}, version="3-4", validate_only=True),
            ("POST", "/v1/topics?validate_only=true", '"3-4"', b'{"name": "\\u00e4"}'),
        ),
    ],
)
def test_both_clients_send_the_same(
    face: Callable[..., Any], use: Callable[[Any], Any], sent: tuple[str, str, str | None, bytes]
) -> None:
    with serving(ok({"a": 1})) as server:
        assert face(server.url, use) == {"a": 1}
    ((method, path, headers, body),) = server.asked
    assert (method, path, headers.get("if-match"), body) == sent
    assert headers["authorization"] == "Bearer t-o-k-e-n"


@pytest.mark.parametrize("face", [blocking, awaited])
@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [
        (problem(404, "UnknownNode"), AdminProblem, "node 7: because. mend it"),
        ((302, {"location": "http://127.0.0.1:1/"}, b""), NotBmq, "{url} answers 302, and not as bmq does"),
        ((200, {}, b"ok"), NotBmq, "{url} does not answer as bmq does: the answer to GET /v1/nodes/7: it is not JSON"),
        ((200, {}, b""), NotBmq, "{url} does not answer as bmq does: the answer to GET /v1/nodes/7: it is not JSON"),
    ],
)
def test_both_clients_say_the_same_of_an_answer_that_is_none(
    face: Callable[..., Any], answer: Answer, error: type[AdminError], said: str
) -> None:
    with serving(answer) as server, pytest.raises(error) as raised:
        face(server.url, lambda client: client.get("nodes", 7, limit=1))
    assert str(raised.value) == said.format(url=server.url)


@pytest.mark.parametrize("face", [blocking, awaited])
def test_both_clients_say_where_nobody_listens(face: Callable[..., Any]) -> None:
    with pytest.raises(NotReached, match=r"^http://127\.0\.0\.1:1 is not reached: ") as raised:
        face("http://127.0.0.1:1", lambda client: client.get("nodes"))
    assert not raised.value.no_http
