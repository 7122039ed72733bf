"""A broker in another process answers as the same broker in this one."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from internal_under_test import CLIENT, RUNNER_IDS, RUNNERS, SERVER, MemoryOwner, Runner, serving, tp
from tests.waiting import until_async

from bmq.errors import (
    BmqError,
    Fenced,
    NotOwner,
    NotReady,
    OffsetOutOfRange,
    PartitionStopped,
    UnknownOutcome,
    UnknownTopic,
)
from bmq.fairness.turns import NOBODY
from bmq.internal import RemoteOwner, owner_handlers
from bmq.internal.calls.owner_calls import (
    APPEND_CALL,
    TAIL_CALL,
    TIME_CALL,
    AppendCall,
    TailCall,
    TimeCall,
    Wanted,
    decode_tails,
    encode_tails,
)
from bmq.internal.framing.apis import Api
from bmq.internal.framing.frames import Kind, decode_frame, encode_frame
from bmq.internal.framing.packing import Packed
from bmq.internal.limits import SAID_ADDRESS_BYTES_MAX, SAID_BYTES_MAX, TAIL_BYTES_MAX
from bmq.roles.group_pages import GroupPage
from bmq.roles.owner import (
    Appended,
    Caller,
    EpochEnd,
    OffsetForTime,
    Owner,
    PartitionStatus,
    Position,
    TailAnswer,
    TailRequest,
    Unread,
)
from bmq.values import LeaderEpoch, ManifestVersion, Offset
from bmq.wire.apis import ApiKey
from bmq.wire.message import Message

every_loop = pytest.mark.parametrize("run", RUNNERS, ids=RUNNER_IDS)
CALLER = Caller(client_id="consumer-1", client_host="/10.0.0.7", api_version=9)
WAITING: Final = 10
SAID_BYTES: Final = 1 << 20


@asynccontextmanager
async def remote(owner: MemoryOwner) -> AsyncIterator[RemoteOwner]:
    async with serving(owner_handlers(owner)) as (_, host, port):
        found = RemoteOwner(host, port, peer=SERVER.node_id, me=CLIENT)
        try:
            yield found
        finally:
            await found.close()


def protocols_agree(owner: RemoteOwner) -> Owner:
    return owner


@every_loop
def test_batches_arrive_unopened_and_in_order_and_their_answers_come_back(run: Runner) -> None:
    async def main() -> None:
        owner = MemoryOwner()
        async with remote(owner) as there:
            batches = [bytes([n]) * (n * 5000) for n in range(60)]
            futures = [there.append(tp(n % 2), memoryview(batch), produce_version=9) for n, batch in enumerate(batches)]
            answers = await asyncio.gather(*futures)
            assert answers == [
                Appended(base_offset=Offset(n // 2), log_append_time_ms=9, log_start=Offset(0)) for n in range(60)
            ]
            assert owner.batches == {tp(0): batches[0::2], tp(1): batches[1::2]}

    run(main())


@every_loop
@pytest.mark.parametrize(
    "error",
    [NotOwner("moved"), NotReady("opening"), Fenced("replaced"), OffsetOutOfRange("no"), UnknownOutcome("lost")],
)
def test_errors_of_the_owner_are_those_of_every_call(run: Runner, error: Exception) -> None:
    async def main() -> None:
        owner = MemoryOwner()
        owner.refuse = error  # type: ignore[assignment]
        async with remote(owner) as there:
            for call in (
                there.append(tp(0), b"batch", produce_version=9),
                there.read_tail([], min_bytes=1, max_bytes=1, max_wait_ms=0),
                there.offset_for_time(tp(0), -1),
                there.epoch_end(tp(0), 3),
                there.delete_records(tp(0), Offset(3)),
                there.status([tp(0)]),
                there.unread([Position(tp=tp(0), offset=Offset(1))]),
                there.group_call(0, 12, Message(), CALLER),
            ):
                with pytest.raises(type(error), match=str(error)) as raised:
                    await call
                assert type(raised.value) is type(error)

    run(main())


@every_loop
@pytest.mark.parametrize(
    "error", [NotReady("opening"), UnknownTopic("its image is behind"), PartitionStopped("an object is missing")]
)
def test_no_batch_overtakes_one_that_was_refused_while_it_was_on_its_way(run: Runner, error: BmqError) -> None:
    async def main() -> None:
        owner = MemoryOwner()
        owner.appends_error = error
        async with remote(owner) as there:
            await there.append(tp(0), b"0", produce_version=9)
            owner.appends_refused = 1
            sent = [there.append(tp(0), batch, produce_version=9) for batch in (b"1", b"2", b"3")]
            elsewhere = await there.append(tp(1), b"e", produce_version=9)
            assert elsewhere.base_offset == 0
            refused = await asyncio.gather(*sent, return_exceptions=True)
            assert [type(one) for one in refused] == [type(error), NotReady, NotReady]
            assert "refused an earlier batch" in str(refused[1])
            again = [there.append(tp(0), batch, produce_version=9) for batch in (b"1", b"2", b"3")]
            assert [answer.base_offset for answer in await asyncio.gather(*again)] == [1, 2, 3]
            assert owner.batches[tp(0)] == [b"0", b"1", b"2", b"3"]

    run(main())


@every_loop
def test_who_calls_in_the_turn_in_which_an_earlier_batch_was_refused_is_refused_at_once(run: Runner) -> None:
    """Who waits for that batch may not know yet: what is called now would overtake it."""

    async def main() -> None:
        owner = MemoryOwner()
        async with remote(owner) as there:
            owner.appends_refused = 1
            called: list[asyncio.Future[Appended]] = []
            first = there.append(tp(0), b"1", produce_version=9)
            first.add_done_callback(lambda _: called.append(there.append(tp(0), b"2", produce_version=9)))
            first.add_done_callback(lambda _: called.append(there.append(tp(1), b"e", produce_version=9)))
            await until_async(lambda: len(called) == 2, "two calls to be answered")
            assert isinstance(called[0].exception(), NotReady)
            await called[1]
            await there.append(tp(0), b"1", produce_version=9)
            assert owner.batches == {tp(0): [b"1"], tp(1): [b"e"]}
            assert isinstance(first.exception(), NotReady)

    run(main())


@every_loop
def test_tails_come_back_with_their_batches_as_they_were(run: Runner) -> None:
    async def main() -> None:
        owner = MemoryOwner()
        owner.answers = [
            TailAnswer(
                tp=tp(0),
                leader_epoch=LeaderEpoch(4),
                manifest_version=ManifestVersion(17),
                log_start=Offset(1),
                tail_start=Offset(100),
                high_watermark=Offset(2**62),
                last_stable_offset=Offset(130),
                batches=(b"first", memoryview(b"x" * 300_000), bytearray(b"third")),
                size_bytes=300_010,
            ),
            TailAnswer(
                tp=tp(1),
                error=OffsetOutOfRange("offset 7 is not within 8 to 9"),
                high_watermark=Offset(9),
                log_start=Offset(8),
            ),
            TailAnswer(tp=tp(2), batches=(b"last",), size_bytes=4),
            TailAnswer(tp=tp(3)),
        ]
        requests = [
            TailRequest(tp=tp(n), offset=Offset(n), max_bytes=1 << 20, current_leader_epoch=n) for n in range(4)
        ]
        async with remote(owner) as there:
            answers = await there.read_tail(requests, min_bytes=1, max_bytes=1 << 30, max_wait_ms=0)
            assert owner.asked == [(requests, 0, TAIL_BYTES_MAX, 0)]
            assert [[bytes(batch) for batch in answer.batches] for answer in answers] == [
                [bytes(batch) for batch in answer.batches] for answer in owner.answers
            ]
            for got, given in zip(answers, owner.answers, strict=True):
                for name in (
                    "tp",
                    "leader_epoch",
                    "manifest_version",
                    "log_start",
                    "tail_start",
                    "high_watermark",
                    "last_stable_offset",
                    "size_bytes",
                ):
                    assert getattr(got, name) == getattr(given, name)
            assert isinstance(answers[1].error, OffsetOutOfRange)
            assert str(answers[1].error) == "offset 7 is not within 8 to 9"

    run(main())


@every_loop
def test_an_older_owner_refuses_a_question_that_it_does_not_know_and_answers_the_others(run: Runner) -> None:
    async def main() -> None:
        handlers = owner_handlers(MemoryOwner())
        older = {api: route for api, route in handlers.items() if api != Api.UNREAD}
        async with serving(older) as (_, host, port):
            there = RemoteOwner(host, port, peer=SERVER.node_id, me=CLIENT)
            try:
                with pytest.raises(NotOwner, match="does not serve unread"):
                    await there.unread([Position(tp=tp(0), offset=Offset(1))])
                assert len(await there.status([tp(0)])) == 1
            finally:
                await there.close()

    run(main())


class TimeCallBefore(msgspec.Struct, frozen=True, array_like=True):
    """As nodes had it that do not say where the client is."""

    topic_id: UUID
    partition: int
    timestamp_ms: int
    current_leader_epoch: int
    committed: bool


class AppendCallBefore(msgspec.Struct, frozen=True, array_like=True):
    """The same of batches."""

    topic_id: UUID
    partition: int
    produce_version: int
    refusal_heard: int


class TailCallBefore(msgspec.Struct, frozen=True, array_like=True):
    """And of tails."""

    requests: list[Wanted]
    min_bytes: int
    max_bytes: int
    max_wait_ms: int
    sizes_only: bool


@pytest.mark.parametrize(
    ("packed", "call", "before", "asked"),
    [
        (TIME_CALL, TimeCall, TimeCallBefore, (tp(1).topic_id, 1, -3, 2, True)),
        (APPEND_CALL, AppendCall, AppendCallBefore, (tp(1).topic_id, 1, 9, 3)),
        (TAIL_CALL, TailCall, TailCallBefore, ([Wanted(tp(1).topic_id, 1, 5, 100, -1)], 1, 100, 500, True)),
    ],
    ids=["time", "append", "tail"],
)
def test_nodes_that_do_not_say_where_a_client_is_are_understood_and_understand(
    packed: Packed[Any], call: type[Any], before: type[Any], asked: tuple[Any, ...]
) -> None:
    packed_before = Packed[Any](before)
    assert packed.decode(packed_before.encode(before(*asked))) == call(*asked, address="")
    assert packed_before.decode(packed.encode(call(*asked, address="/10.0.0.7"))) == before(*asked)


@every_loop
def test_an_owner_is_told_at_which_address_the_client_is_that_writes_or_reads(run: Runner) -> None:
    async def main() -> None:
        owner = MemoryOwner()
        owner.answers = [TailAnswer(tp=tp(0), error=NotReady("opening"))]
        async with remote(owner) as there:
            await there.append(tp(0), b"batch", produce_version=9, party=("/10.0.0.7", "producer-1"))
            asked = [TailRequest(tp=tp(0), offset=Offset(0), max_bytes=10)]
            await there.read_tail(asked, min_bytes=1, max_bytes=10, max_wait_ms=0, party=("/10.0.0.8", "consumer-1"))
            await there.append(tp(0), b"batch", produce_version=9)
            assert owner.parties == [("/10.0.0.7", ""), ("/10.0.0.8", ""), NOBODY]

    run(main())


@every_loop
def test_questions_and_answers_are_the_same_on_both_sides(run: Runner) -> None:
    async def main() -> None:
        owner = MemoryOwner()
        async with remote(owner) as there:
            assert await there.offset_for_time(
                tp(0), -3, current_leader_epoch=2, committed=True, address="/10.0.0.7"
            ) == OffsetForTime(offset=Offset(5), timestamp_ms=-3, leader_epoch=LeaderEpoch(2))
            assert await there.epoch_end(tp(1), 3, current_leader_epoch=4) == EpochEnd(
                leader_epoch=LeaderEpoch(3), end_offset=Offset(77)
            )
            assert await there.delete_records(tp(2), Offset(2**40)) == 2**40
            statuses = await there.status([tp(3), tp(4)])
            assert statuses == [
                PartitionStatus(
                    tp=tp(n),
                    log_start=Offset(1),
                    high_watermark=Offset(2),
                    tail_bytes=3,
                    segment_bytes=4,
                    segment_count=5,
                )
                for n in (3, 4)
            ]
            positions = [Position(tp=tp(n), offset=Offset(n + 2**33)) for n in (0, 1)]
            assert await there.unread(positions) == [None, Unread(records=3, seconds=0.5)]
            assert owner.asked.pop() == (positions,)
            assert owner.asked == [(tp(0), -3, 2, True, "/10.0.0.7"), (tp(1), 3, 4), (tp(2), 2**40), ([tp(3), tp(4)],)]

    run(main())


@every_loop
def test_a_group_call_carries_messages_exactly(run: Runner) -> None:
    async def main() -> None:
        owner = MemoryOwner()
        owner.reply = {
            "error_code": 0,
            "topics": [{"name": "orders", "topic_id": UUID(int=3), "partitions": [Message(index=0, metadata=None)]}],
        }
        request = Message(
            group_id="g",
            topics=[Message(name="orders", topic_id=None, partitions=[Message(index=0, committed_offset=2**60)])],
            data=b"\x00",
        )
        async with remote(owner) as there:
            reply = await there.group_call(33, 8, request, CALLER)
            assert owner.asked == [(33, 8, request, CALLER)]
            assert reply == owner.reply
            assert isinstance(reply, dict)

    run(main())


def has_asked(owner: MemoryOwner, count: int) -> bool:
    return len(owner.asked) == count


class PagingOwner(MemoryOwner):
    """Its list of groups has pages, unless it is of an older version."""

    def __init__(self, pages: int) -> None:
        super().__init__()
        self._pages = pages

    async def group_call(self, partition: int, api_key: int, request: Any, caller: Caller) -> Any:
        self.asked.append(request)
        if not self._pages:
            return {"error_code": 0, "groups": [{"group_id": "all"}]}
        page = GroupPage.parse(request.after) if request.after else GroupPage(0, self._pages, "salt")
        return {
            "error_code": self.code if page.number else 0,
            "groups": [{"group_id": f"g{page.number}"}],
            "after": page.next,
        }

    code = 0


@every_loop
@pytest.mark.parametrize("pages", [0, 1, 5])
def test_a_list_of_groups_comes_in_pages_and_of_an_older_node_at_once(run: Runner, pages: int) -> None:
    async def main() -> None:
        owner = PagingOwner(pages)
        async with remote(owner) as there:
            reply = await there.group_call(
                3, ApiKey.LIST_GROUPS, Message(states_filter=["Stable"], types_filter=[]), CALLER
            )
            names = [f"g{number}" for number in range(pages)] or ["all"]
            assert reply == {"error_code": 0, "groups": [{"group_id": name} for name in names]}
            assert len(owner.asked) == max(1, pages)
            assert {tuple(request.states_filter) for request in owner.asked} == {("Stable",)}
            owner.code = 14
            reply = await there.group_call(3, ApiKey.LIST_GROUPS, Message(states_filter=[], types_filter=[]), CALLER)
            assert reply["error_code"] == (14 if pages > 1 else 0)

    run(main())


@every_loop
def test_what_waits_for_others_of_its_group_keeps_no_bytes_of_its_request_on_either_side(run: Runner) -> None:
    async def main() -> None:
        owner = MemoryOwner()
        owner.hold_calls = asyncio.Event()
        taken: list[int] = []
        async with remote(owner) as there:
            await there.status([tp(0)])
            owner.asked.clear()
            tracemalloc.start()
            try:
                before_bytes = tracemalloc.get_traced_memory()[0]
                calls = []
                for number in range(WAITING):
                    caller = Caller(client_id="c", client_host="/h", taken=partial(taken.append, number))
                    request = Message(group_id="g", protocols=[Message(name="range", metadata=bytes(SAID_BYTES))])
                    calls.append(asyncio.ensure_future(there.group_call(0, 11, request, caller)))
                    await until_async(partial(has_asked, owner, number + 1), "the call at the owner")
                    del request
                owner.asked.clear()
                grown_bytes = tracemalloc.get_traced_memory()[0] - before_bytes
            finally:
                tracemalloc.stop()
            assert taken == list(range(WAITING))
            assert grown_bytes < 4 * SAID_BYTES < WAITING * SAID_BYTES // 2
            owner.hold_calls.set()
            await asyncio.gather(*calls)

    run(main())


@every_loop
def test_what_members_say_before_their_group_has_it_is_bounded_for_each_address_and_for_all(run: Runner) -> None:
    async def main() -> None:
        owner = MemoryOwner()
        owner.hold_calls = asyncio.Event()
        async with remote(owner) as there:

            def say(number: int, host: str) -> "asyncio.Future[Any]":
                caller = Caller(client_id="c", client_host=host)
                request = Message(group_id=f"g{number}", protocols=[Message(name="range", metadata=bytes(SAID_BYTES))])
                return asyncio.ensure_future(there.group_call(0, ApiKey.JOIN_GROUP, request, caller))

            room = SAID_ADDRESS_BYTES_MAX // SAID_BYTES - 1
            calls = []

            async def said_by(hosts: Sequence[str]) -> None:
                for host in hosts:
                    calls.append(say(len(calls), host))
                    await until_async(lambda: len(owner.asked) == len(calls), "all calls at the owner")

            await said_by(["/h"] * room)
            for api_key, fields in (
                (ApiKey.JOIN_GROUP, {"protocols": [bytes(SAID_BYTES)]}),
                (ApiKey.SYNC_GROUP, {"assignments": [bytes(SAID_BYTES)]}),
            ):
                with pytest.raises(NotReady, match="16 MiB"):
                    await there.group_call(
                        0, api_key, Message(group_id="g", **fields), Caller(client_id="c", client_host="/h")
                    )
            await said_by([f"/h{n // room}" for n in range(SAID_BYTES_MAX // SAID_BYTES - room - 1)])
            with pytest.raises(NotReady, match="64 MiB"):
                await say(0, "/late")
            beat = asyncio.ensure_future(
                there.group_call(0, ApiKey.HEARTBEAT, Message(), Caller(client_id="c", client_host="/h"))
            )
            await until_async(lambda: owner.asked[-1][1] == ApiKey.HEARTBEAT, "the heartbeat at the owner")
            for *_, caller in owner.asked[:room]:
                caller.taken()  # its group has it, and counts it
                caller.taken()
            owner.asked.clear()
            late = [say(0, "/h"), say(0, "/late")]
            await until_async(lambda: len(owner.asked) == len(late), "all late calls at the owner")
            owner.hold_calls.set()
            await asyncio.gather(beat, *calls, *late)
            for _ in range(room):
                await say(0, "/h")

    run(main())


def test_a_read_that_is_not_answered_may_be_asked_again() -> None:
    async def main() -> None:
        owner = MemoryOwner()
        owner.hold_reads = asyncio.Event()
        async with remote(owner) as there:
            request = [TailRequest(tp=tp(0), offset=Offset(0), max_bytes=1)]
            read = asyncio.ensure_future(there.read_tail(request, min_bytes=1, max_bytes=1, max_wait_ms=60_000))
            await until_async(lambda: len(owner.asked) == 1, "one call at the owner")
            await there.close()
            with pytest.raises(NotReady):
                await read

    asyncio.run(main())


batches = st.lists(st.binary(max_size=200), max_size=4)


@given(st.lists(st.tuples(st.none() | st.text(max_size=20), batches, st.integers(-1, 2**62)), max_size=6))
@settings(max_examples=60, deadline=None)
def test_any_tails_come_back_as_they_were(given_answers: list[tuple[str | None, list[bytes], int]]) -> None:
    answers = [
        TailAnswer(
            tp=tp(n),
            error=None if text is None else NotOwner(text),
            high_watermark=Offset(offset),
            batches=tuple(found),
            size_bytes=sum(map(len, found)),
        )
        for n, (text, found, offset) in enumerate(given_answers)
    ]
    header, attachments, _ = encode_tails(answers)
    frame = decode_frame(b"".join(encode_frame(Kind.REPLY, header=header, attachments=attachments)))
    back = decode_tails(frame, [TailRequest(tp=answer.tp, offset=Offset(0), max_bytes=0) for answer in answers])

    def plain(answer: TailAnswer) -> Any:
        return (
            answer.tp,
            str(answer.error),
            type(answer.error),
            answer.high_watermark,
            [bytes(batch) for batch in answer.batches],
            answer.size_bytes,
        )

    assert [plain(answer) for answer in back] == [plain(answer) for answer in answers]


class EndingOwner(MemoryOwner):
    """Its group calls wait for good. Which of them began, and which were ended before they were over."""

    def __init__(self) -> None:
        super().__init__()
        self.began: list[int] = []
        self.ended: list[int] = []

    async def group_call(self, partition: int, api_key: int, request: Any, caller: Caller) -> Any:
        self.began.append(api_key)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.ended.append(api_key)
            raise


@pytest.mark.parametrize("lost", [False, True], ids=["given up by its caller", "whose connection is lost"])
@every_loop
def test_who_is_gone_waits_no_more_for_a_group_and_what_was_to_be_changed_is_carried_through(
    run: Runner, lost: bool
) -> None:
    async def main() -> None:
        owner = EndingOwner()
        async with remote(owner) as there:
            ending = [ApiKey.JOIN_GROUP, ApiKey.OFFSET_FETCH, ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_GROUPS]
            asked = {
                api_key: Message(group_id="g", protocols=[], topics=[]) for api_key in (ApiKey.OFFSET_COMMIT, *ending)
            }
            calls = [
                asyncio.ensure_future(there.group_call(0, api_key, request, CALLER))
                for api_key, request in asked.items()
            ]
            await until_async(lambda: len(owner.began) == len(calls), "all calls to begin")
            if lost:
                await there.close()
            else:
                for call in calls:
                    call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            await until_async(lambda: len(owner.ended) == len(ending), "all calls to end")
            assert sorted(owner.ended) == sorted(ending)

    run(main())
