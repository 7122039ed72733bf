"""Answers of few elements and many bytes: few of those who do not take theirs have one, and they make room for who
does.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from one_connection import run, slow_reader
from proxy_in_memory import Client, Running
from tests.waiting import until_async

from bmq.config.limits import limits_of
from bmq.errors import BmqError
from bmq.naming.names import CONSUMER_OFFSETS
from bmq.wire.apis import ApiKey
from bmq_proxy.endpoint import TAKEN_BYTES_PER_S_MIN, UNTAKEN_S_MAX
from bmq_proxy.settings import ProxySettings

LARGE_BYTES = 6_000_000
ANSWERS_BYTES = 8_000_000
NOT_READING = 12
SMALL_ROOM = ProxySettings(limits=limits_of({"answer_memory_bytes": ANSWERS_BYTES}))

JOIN: dict[str, Any] = {
    "group_id": "g",
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "member_id": "a",
    "group_instance_id": None,
    "protocol_type": "consumer",
    "protocols": [],
}
SYNC: dict[str, Any] = {"group_id": "g", "generation_id": 1, "member_id": "a", "assignments": []}
LIST: dict[str, Any] = {"states_filter": [], "types_filter": []}
QUESTIONS = {ApiKey.JOIN_GROUP: (5, JOIN), ApiKey.SYNC_GROUP: (3, SYNC), ApiKey.LIST_GROUPS: (4, LIST)}


def joined(metadata: bytes = bytes(LARGE_BYTES // 10)) -> dict[str, Any]:
    members = [{"member_id": str(number), "group_instance_id": None, "metadata": metadata} for number in range(10)]
    return {
        "error_code": 0,
        "generation_id": 1,
        "protocol_name": "p",
        "leader": "a",
        "member_id": "a",
        "members": members,
    }


def synced() -> dict[str, Any]:
    return {"error_code": 0, "assignment": bytes(LARGE_BYTES)}


def listed() -> dict[str, Any]:
    names = [f"{number}-" + "n" * 30_000 for number in range(200)]
    groups = [
        {"group_id": name, "protocol_type": "", "group_state": "Empty", "group_type": "Classic"} for name in names
    ]
    return {"error_code": 0, "groups": groups}


ANSWERS: dict[ApiKey, Callable[[], dict[str, Any]]] = {
    ApiKey.JOIN_GROUP: joined,
    ApiKey.SYNC_GROUP: synced,
    ApiKey.LIST_GROUPS: listed,
}


async def stuck(proxy: Running, *, host: str = "127.0.0.2") -> Client:
    """Who reads nothing."""
    quiet = slow_reader()
    quiet.bind((host, 0))
    await asyncio.get_running_loop().sock_connect(quiet, (proxy.role.host, proxy.role.port))
    proxy.clients.append(await Client.connect(sock=quiet, limit=1_024))
    return proxy.clients[-1]


async def stuck_in_a_large_answer(proxy: Running) -> Client:
    """The same, with more on its way than all answers may have."""
    proxy.metadata.add_topic(CONSUMER_OFFSETS, 1)
    proxy.owner.on_group_call = lambda *_: {"error_code": 0, "assignment": bytes(2 * ANSWERS_BYTES)}
    one = await stuck(proxy)
    one.send(ApiKey.SYNC_GROUP, 3, SYNC)
    return one


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who takes nothing goes soon."""
    monkeypatch.setattr("bmq_proxy.endpoint.UNTAKEN_S_MAX", 0.1)


@pytest.mark.parametrize("key", QUESTIONS, ids=lambda key: key.name.lower())
def test_large_answers_that_nobody_takes_are_few_and_others_have_theirs_once_those_went(key: ApiKey) -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.metadata.add_topic(CONSUMER_OFFSETS, 1)
        answers, endpoint = proxy.role.proxy.bulk.answers, proxy.role.server.endpoint
        proxy.owner.on_group_call = lambda *_: ANSWERS[key]()
        version, request = QUESTIONS[key]
        for _ in range(NOT_READING):
            (await stuck(proxy)).send(key, version, request)
        await until_async(lambda: answers.held_bytes >= ANSWERS_BYTES * 3 // 4, "as many answers as may wait")
        for _ in range(300):
            await asyncio.sleep(0.001)
            assert answers.held_bytes <= 2 * ANSWERS_BYTES + LARGE_BYTES
        client.send(key, version, request)
        taken = asyncio.ensure_future(client.receive())
        while not taken.done():
            endpoint.relieve()
            for _ in range(10):  # who takes what comes has taken something meanwhile
                await asyncio.sleep(0.005)
        assert (await taken)[1].error_code == 0

    run(test, SMALL_ROOM)


@pytest.mark.parametrize("key", QUESTIONS, ids=lambda key: key.name.lower())
def test_large_answers_that_nobody_takes_keep_nobody_at_another_address_waiting(
    key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bmq_proxy.endpoint.UNTAKEN_S_MAX", 1_000.0)

    async def test(proxy: Running, client: Client) -> None:
        proxy.metadata.add_topic(CONSUMER_OFFSETS, 1)
        answers = proxy.role.proxy.bulk.answers
        proxy.owner.on_group_call = lambda *_: ANSWERS[key]()
        version, request = QUESTIONS[key]
        for _ in range(NOT_READING):
            (await stuck(proxy)).send(key, version, request)
        await until_async(lambda: answers.is_waited_for, "more answers than may wait")
        assert (await client.ask(key, version, request)).error_code == 0
        assert answers.is_waited_for

    run(test, SMALL_ROOM)


def test_who_takes_nothing_goes_where_answers_are_more_than_there_may_be_though_nobody_waits() -> None:
    async def test(proxy: Running, client: Client) -> None:
        await stuck_in_a_large_answer(proxy)
        answers, endpoint = proxy.role.proxy.bulk.answers, proxy.role.server.endpoint
        await until_async(lambda: answers.held_bytes > ANSWERS_BYTES, "more answers than may wait")
        assert not answers.is_waited_for
        endpoint.relieve()
        assert answers.held_bytes > ANSWERS_BYTES
        await asyncio.sleep(0.2)
        endpoint.relieve()
        await until_async(lambda: answers.held_bytes == 0, "all answers to be taken")

    run(test, SMALL_ROOM)


def test_a_time_in_which_the_proxy_itself_did_not_run_counts_against_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bmq_proxy.endpoint.UNTAKEN_S_MAX", UNTAKEN_S_MAX)

    async def test(proxy: Running, client: Client) -> None:
        server, stood_s = proxy.role.server, 60.0
        assert server._sweeper is not None
        server._sweeper.cancel()  # nobody looks but this test
        await stuck_in_a_large_answer(proxy)
        endpoint = server.endpoint
        await until_async(
            lambda: any(found.unsent_bytes for found in endpoint.connections), "an answer that is not taken"
        )
        endpoint.relieve()
        [(connection, (unsent_bytes, since))] = endpoint._unsent.items()
        endpoint._relieved_at -= stood_s
        endpoint._unsent[connection] = unsent_bytes, since - stood_s
        endpoint.relieve()
        assert connection in endpoint._unsent, "it stays"

    run(test, SMALL_ROOM)


def test_the_next_answer_of_a_group_comes_where_the_coordinator_refuses() -> None:
    async def test(proxy: Running, client: Client) -> None:
        proxy.metadata.add_topic(CONSUMER_OFFSETS, 1)
        replies: list[Any] = [BmqError("no"), synced()]
        proxy.owner.on_group_call = lambda *_: replies.pop(0)
        assert (await client.ask(ApiKey.SYNC_GROUP, 3, SYNC)).error_code != 0
        assert len((await client.ask(ApiKey.SYNC_GROUP, 3, SYNC)).assignment) == LARGE_BYTES
        assert proxy.role.proxy.bulk._collecting._room.left == SMALL_ROOM.limits.answer_memory_bytes

    run(test, SMALL_ROOM)


@pytest.mark.parametrize(("share", "stays"), [(0.5, False), (1.5, True)], ids=["too little", "enough"])
def test_who_takes_a_little_of_its_answer_at_a_time_goes_as_who_takes_nothing(*, share: float, stays: bool) -> None:
    """Of what it has to take it takes this share."""

    async def test(proxy: Running, client: Client) -> None:
        assert proxy.role.server._sweeper is not None
        proxy.role.server._sweeper.cancel()  # nobody looks but this test
        one = await stuck_in_a_large_answer(proxy)
        answers, endpoint = proxy.role.proxy.bulk.answers, proxy.role.server.endpoint
        await until_async(
            lambda: any(found.unsent_bytes for found in endpoint.connections), "an answer that is not taken"
        )
        [connection] = [found for found in endpoint.connections if found.unsent_bytes]
        endpoint.relieve()
        for _ in range(3):
            before_bytes, _ = endpoint._unsent[connection]
            # However long this takes: the endpoint looks by itself, too.
            endpoint._unsent[connection] = before_bytes, asyncio.get_running_loop().time() + 3_600
            while (taken_bytes := before_bytes - connection.unsent_bytes) < 32 << 10:
                await one.reader.read(1 << 16)
                await asyncio.sleep(0)
            took_s = taken_bytes / (share * TAKEN_BYTES_PER_S_MIN)
            endpoint._unsent[connection] = before_bytes, asyncio.get_running_loop().time() - took_s
            endpoint.relieve()
            if not stays:
                assert connection not in endpoint._unsent, "it is gone"
                await until_async(lambda: not answers.held_bytes, "all answers to be taken")
                return
            assert endpoint._unsent[connection][0] == before_bytes - taken_bytes, "it is looked at anew"
        assert answers.held_bytes

    run(test, SMALL_ROOM)


@pytest.mark.parametrize("key", [ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP], ids=lambda key: key.name.lower())
def test_a_member_is_told_much_once_at_a_time_however_often_it_asks(key: ApiKey) -> None:
    async def test(proxy: Running, _: Client) -> None:
        proxy.metadata.add_topic(CONSUMER_OFFSETS, 1)
        asked: list[str] = []
        answered = asyncio.Event()

        async def group_call(_partition: int, _key: int, request: Any, _caller: Any) -> dict[str, Any]:
            asked.append(request.member_id)
            await answered.wait()
            return ANSWERS[key]()

        proxy.owner.group_call = group_call  # type: ignore[method-assign]
        version, question = QUESTIONS[key]
        members = ("a", "a", "a", "b", "", "")
        askers = [await proxy.connect() for _ in members]
        for one, member in zip(askers, members, strict=True):
            one.send(key, version, {**question, "member_id": member})
        await until_async(lambda: sorted(asked) == ["", "", "a", "b"], "one question of each member")
        askers.pop(0).writer.close()  # who has gone holds up nobody
        await until_async(lambda: sorted(asked) == ["", "", "a", "a", "b"], "the member's next one")
        answered.set()
        for one in askers:
            assert (await one.receive())[1].error_code == 0
        assert sorted(asked) == ["", "", "a", "a", "a", "b"]

    run(test)
