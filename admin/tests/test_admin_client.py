"""The client of the admin API, against a started bmq and, for what bmq never answers, against answers of the
test's own.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import httpx
import pytest
from real_bmq import TOKEN, bmq_with_token
from tests.started_bmq import StartedBmq

from bmq_admin.client import ANSWER_BYTES_MAX, AdminClient
from bmq_admin.errors import AdminProblem, AdminUnreachable

T = TypeVar("T")
Answer = Callable[[httpx.Request], httpx.Response]


@pytest.fixture(scope="module")
def bmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedBmq]:
    with bmq_with_token(tmp_path_factory.mktemp("bmq")) as started:
        yield started


def with_client(
    url: str, use: Callable[[AdminClient], Awaitable[T]], *, token: str = TOKEN, answer: Answer | None = None
) -> T:
    async def run() -> T:
        client = AdminClient(
            url, token=token, timeout_s=60, transport=None if answer is None else httpx.MockTransport(answer)
        )
        try:
            return await use(client)
        finally:
            await client.close()

    return asyncio.run(run())


def test_a_topic_is_created_changed_in_its_version_alone_and_deleted(bmq: StartedBmq) -> None:
    async def use(client: AdminClient) -> None:
        created = await client.post(
            "topics", body={"name": "orders.new", "partitions": 2, "configs": {"retention.ms": "1000"}}
        )
        old = created["version"]
        grown = await client.post("topics", "orders.new", "partitions", body={"total": 3}, version=old)
        assert grown["partitions"] == 3
        with pytest.raises(AdminProblem) as raised:
            await client.patch("topics", "orders.new", "configs", body={"retention.ms": "2000"}, version=old)
        assert (raised.value.status, raised.value.code, raised.value.passes) == (412, "VersionMismatch", False)
        await client.patch("topics", "orders.new", "configs", body={"retention.ms": None}, version=grown["version"])
        assert (await client.get("topics", "orders.new"))["configs"] == {}
        await client.delete("topics", "orders.new")
        with pytest.raises(AdminProblem) as raised:
            await client.get("topics", "orders.new")
        assert raised.value.missing

    with_client(bmq.admin, use)


def test_a_refusal_says_what_why_and_the_remedy(bmq: StartedBmq) -> None:
    async def use(client: AdminClient) -> None:
        with pytest.raises(AdminProblem, match=r"retention\.ms") as raised:
            await client.post("topics", body={"name": "x", "configs": {"retention.ms": "soon"}})
        assert raised.value.status == 400 and raised.value.remedy
        with pytest.raises(AdminProblem) as raised:
            await client.delete("topics", "a/b?c")
        assert raised.value.missing

    with_client(bmq.admin, use)


def test_lists_are_read_page_by_page(bmq: StartedBmq) -> None:
    async def use(client: AdminClient) -> None:
        for index in range(5):
            await client.post("topics", body={"name": f"page-{index}", "partitions": 1})
        found = [topic["name"] async for topic in client.items("topics", prefix="page-", limit=2)]
        assert found == [f"page-{index}" for index in range(5)]

    with_client(bmq.admin, use)


def test_a_wrong_token_is_a_problem_and_stands_in_no_text(bmq: StartedBmq, caplog: pytest.LogCaptureFixture) -> None:
    wrong = "another-token-of-sixteen"

    async def use(client: AdminClient) -> str:
        with pytest.raises(AdminProblem) as raised:
            await client.get("topics")
        assert raised.value.status == 401
        return f"{client!r} {client} {raised.value!r} {raised.value}"

    with caplog.at_level(logging.DEBUG):
        said = with_client(bmq.admin, use, token=wrong)
    assert wrong not in said + caplog.text


def test_an_address_where_nobody_listens_is_unreachable() -> None:
    async def use(client: AdminClient) -> None:
        with pytest.raises(AdminUnreachable, match=r"http://127\.0\.0\.1:1 is not reached"):
            await client.get("topics")

    with_client("http://127.0.0.1:1/", use)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (httpx.Response(502, text="<html>bad gateway"), "answers 502, and not as bmq does"),
        (httpx.Response(302, headers={"location": "http://elsewhere/v1/topics"}), "answers 302"),
        (httpx.Response(200, text="ok"), "not JSON"),
        (httpx.Response(500, json=[1]), "answers 500"),
    ],
)
def test_what_does_not_answer_as_bmq_does_is_unreachable_and_redirects_are_not_followed(
    answer: httpx.Response, why: str
) -> None:
    asked: list[str] = []

    def reply(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        return answer

    async def use(client: AdminClient) -> None:
        with pytest.raises(AdminUnreachable, match=why):
            await client.get("topics")

    with_client("http://bmq", use, answer=reply)
    assert asked == ["http://bmq/v1/topics"]


def test_an_answer_without_end_is_not_read_to_its_end() -> None:
    async def endless() -> object:
        while True:
            yield b"x" * (1 << 20)

    async def use(client: AdminClient) -> None:
        with pytest.raises(AdminUnreachable, match=str(ANSWER_BYTES_MAX)):
            await client.get("topics")

    with_client("http://bmq", use, answer=lambda _: httpx.Response(200, content=endless()))


def test_a_server_that_never_answers_is_given_up() -> None:
    def never(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("", request=request)

    async def use(client: AdminClient) -> None:
        with pytest.raises(AdminUnreachable, match="does not answer in time"):
            await client.post("topics", body={"name": "x"})

    with_client("http://bmq", use, answer=never)
