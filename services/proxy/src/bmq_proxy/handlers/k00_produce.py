"""Produce, key 0, versions 3 to 13; 0 to 2 are answered with an error. Missing: transactions.

acks 0, 1 and all mean the same for durability: what is answered is in the object store. With acks=0 nothing is
answered, and an error closes the connection. Batches are submitted in the order of arrival before anything else of the
connection is looked at: where they are few at once, otherwise in turns of the loop, while what its connection sends
meanwhile waits behind them (`bmq_proxy.beginnings`).

A request's time-out is how long a batch may wait for an owner that takes it. What an owner has becomes durable in most
cases, and a client that is told of a time-out sends it again: so an outcome is waited for at least
`write_timeout_ms_min`, whatever the client says (Kafka's acks=1 knows no time-out at all). Who wants no answer is not
cut off for it.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Final

from typing_extensions import Buffer

from bmq.config.topic_config import LANE_HEADER
from bmq.errors import BmqError, InvalidBatch, InvalidRecords, InvalidRequest, InvalidTopicName, RequestError
from bmq.naming.names import is_internal
from bmq.values import TopicPartition
from bmq.wire.apis import SERVED, ApiKey
from bmq.wire.chosen_codes import code_for
from bmq.wire.error_codes import ErrorCode
from bmq.wire.produce import (
    ProducedPartition,
    ProducedTopic,
    ProduceRequest,
    TooManyPartitions,
    encode_produce_response,
    parse_produce,
)
from bmq_proxy import metrics
from bmq_proxy.api import Route, error_name
from bmq_proxy.appends import Append
from bmq_proxy.beginnings import Place
from bmq_proxy.calls import Answer, Call, Pending
from bmq_proxy.proxy import Proxy
from bmq_proxy.refused import Named
from bmq_proxy.time_outs import TimeOut
from bmq_proxy.topics import find_topic, partition_of

_API: Final = SERVED[ApiKey.PRODUCE]
ACKS = (-1, 0, 1)
TIMEOUT_MS_MAX = 600_000
TURN_BYTES: Final = 8 << 20
"""As many bytes of batches as one turn of the loop begins: they are checked and copied, some ms."""


def route(proxy: Proxy) -> Route:
    """Serves Produce: has the owners of partitions append record batches."""
    return Route(api=SERVED[ApiKey.PRODUCE], begin=partial(begin, proxy), overlaps=True, any_version=True)


def begin(proxy: Proxy, call: Call, body: Buffer) -> Pending:
    """Submits everything before it returns, where that is little and nothing of the connection is still being begun."""
    inline_max = proxy.settings.limits.produce_turn_partitions
    if memoryview(body).nbytes <= TURN_BYTES and not proxy.beginnings.is_open(call.origin):
        try:
            request = parse_produce(call.version, body, partitions_max=inline_max)
        except TooManyPartitions:
            pass  # for one turn
        else:
            call.partitions = partitions_of(request)
            return _refused(call, request) or _Producing(proxy, call, request).start()
    call.partitions = inline_max
    return proxy.loop.create_task(_in_turns(proxy, call, body, proxy.beginnings.enter(call.origin)), name="Produce")


def partitions_of(request: ProduceRequest) -> int:
    """How many it has batches for."""
    topics = request.topics
    return len(topics[0].partitions) if len(topics) == 1 else sum([len(topic.partitions) for topic in topics])


async def _in_turns(proxy: Proxy, call: Call, body: Buffer, place: Place) -> Answer:
    async with AsyncExitStack() as whole:
        try:
            await place.reached()
            partitions = await whole.enter_async_context(proxy.bulk.producing(call, memoryview(body).nbytes))
            request = await proxy.bulk.apart(call, partial(parse_produce, call.version, body))
            partitions.keep(sum([max(1, len(topic.partitions)) for topic in request.topics]))
            refused = _refused(call, request)
            if refused is not None:
                return refused
            producing = _Producing(proxy, call, request)
            await producing.start_in_turns()
        finally:
            place.over()
        return await producing.answer_apart()


def _refused(call: Call, request: ProduceRequest) -> Answer | None:
    """The answer where nothing of the request can be taken."""
    refusal = _refusal(call, request)
    if refusal is None:
        return None
    return _answer(
        call, request, [[_failed(index, *refusal) for index, _ in topic.partitions] for topic in request.topics]
    )


def _refusal(call: Call, request: ProduceRequest) -> tuple[int, str] | None:
    """(code, reason) where nothing of the request can be taken."""
    if not _API.serves(call.version):
        return int(
            ErrorCode.unsupported_version
        ), "Use version 3 or later: older ones carry message formats that bmq does not take"
    if request.acks not in ACKS:
        return int(ErrorCode.invalid_required_acks), f"acks={request.acks}: use 0, 1 or all"
    if request.transactional_id is not None:
        return int(ErrorCode.invalid_request), "Transactions are not served by this version of bmq"
    return None


class _Producing:
    """One request whose batches are on their way."""

    __slots__ = (
        "_answer",
        "_call",
        "_give_up_at",
        "_is_over",
        "_missing",
        "_named",
        "_pending",
        "_proxy",
        "_request",
        "_results",
        "_timeout_ms",
        "_timer",
    )

    def __init__(self, proxy: Proxy, call: Call, request: ProduceRequest) -> None:
        self._proxy = proxy
        self._call = call
        self._request = request
        has_one = len(request.topics) == 1 and len(request.topics[0].partitions) == 1
        self._results: list[list[ProducedPartition | None]] = (
            [[None]] if has_one else [[None] * len(topic.partitions) for topic in request.topics]
        )
        self._pending: dict[tuple[int, int], Append] = {}
        self._missing = 0
        self._named: set[TopicPartition] | None = None if has_one else set()
        self._answer: asyncio.Future[Answer] | None = None
        self._is_over: asyncio.Future[None] | None = None
        """Resolves when nothing is waited for any more; None but for a request that was begun in turns, whose answer is
        made apart."""
        self._timeout_ms = min(max(request.timeout_ms, 0), TIMEOUT_MS_MAX)
        self._timer: TimeOut | None = None
        self._give_up_at = 0.0

    def start(self) -> Pending:
        """Submits everything before it returns."""
        self._give_up_at = self._proxy.loop.time() + min(self._timeout_ms, self._proxy.settings.produce_retry_ms) / 1000
        if self._named is None:
            self._submit_one()
        else:
            for _ in self._submitted(partitions_max=0, bytes_max=0):
                pass
        if not self._missing:
            return self._finished()
        self._answer = self._proxy.loop.create_future()
        self._set_timer()
        return self._answer

    async def start_in_turns(self) -> None:
        """Returns once everything is submitted. Its time begins then."""
        settings, call = self._proxy.settings, self._call
        self._give_up_at = float("inf")
        self._missing = 1  # itself
        for _ in self._submitted(partitions_max=settings.limits.produce_turn_partitions, bytes_max=TURN_BYTES):
            await self._proxy.bulk.turn(call)
        self._missing -= 1
        self._give_up_at = self._proxy.loop.time() + min(self._timeout_ms, settings.produce_retry_ms) / 1000
        for append in self._pending.values():
            append.give_up_at = self._give_up_at

    async def answer_apart(self) -> Answer:
        """The answer to a request that was started in turns, once there is nothing to wait for."""
        if self._missing:
            self._is_over = self._proxy.loop.create_future()
            self._set_timer()
            await self._is_over
        self._observe()
        return await self._proxy.bulk.apart(self._call, self._answered)

    def _set_timer(self) -> None:
        time_outs, timeout_ms, least_ms = (
            self._proxy.time_outs,
            self._timeout_ms,
            self._proxy.settings.write_timeout_ms_min,
        )
        if timeout_ms < least_ms:
            self._timer = time_outs.add(timeout_ms, partial(self._give_up_waiting, least_ms - timeout_ms))
        else:
            self._timer = time_outs.add(timeout_ms, self._timed_out)

    def _submit_one(self) -> None:
        """Submits everything of a request with one batch, as nearly all are."""
        topic = self._request.topics[0]
        index, records = topic.partitions[0]
        self._submit((0, 0), topic.name if topic.topic_id is None else topic.topic_id, index, records, self._give_up_at)
        if records is not None:
            self._proxy.produced_bytes.inc(records.nbytes)

    def _submitted(self, *, partitions_max: int, bytes_max: int) -> Iterator[None]:
        """Submits everything; stops whenever that was enough for a turn of the loop."""
        partitions, size_bytes = 0, 0
        for at_topic, topic in enumerate(self._request.topics):
            key = topic.name if topic.topic_id is None else topic.topic_id
            for at, (index, records) in enumerate(topic.partitions):
                size_bytes += 0 if records is None else records.nbytes
                self._submit((at_topic, at), key, index, records, self._give_up_at)
                partitions += 1
                if partitions_max and (partitions >= partitions_max or size_bytes >= bytes_max):
                    self._proxy.produced_bytes.inc(size_bytes)
                    partitions, size_bytes = 0, 0
                    yield
        self._proxy.produced_bytes.inc(size_bytes)

    def _submit(
        self, at: tuple[int, int], topic: object, index: int, records: memoryview | None, give_up_at: float
    ) -> None:
        proxy, call = self._proxy, self._call
        refused, origin = proxy.appends.refused, call.origin
        named: Named = topic, index
        try:
            if not records:
                raise InvalidBatch("a Produce request without a record batch")
            found = find_topic(proxy.image, topic)
            tp = partition_of(found, index)
            name = found.name
            if is_internal(name):
                raise _InternalTopic(f"{name} is written by bmq alone")
            if self._named is not None:
                if tp in self._named:
                    # No client does; and what waits for one partition is looked through each time that some of it is
                    # given up.
                    raise _NamedTwice(
                        f"{name}-{index} is in this request already: send one batch for a partition in each request"
                    )
                self._named.add(tp)
            if refused:
                refused.check(origin, named, records)
            proof = proxy.proofs.begin(tp, records, party=call.client_host, origin=origin)
        except BmqError as error:
            if records:
                refused.note(origin, named, records, error)
            self._results[at[0]][at[1]] = _of_error(index, error)
            return
        if found.configs.get(LANE_HEADER) and not proxy.lane_number:
            append = proxy.parting.submit(
                found,
                tp,
                records,
                proof,
                produce_version=call.version,
                give_up_at=give_up_at,
                origin=origin,
                address=call.client_host,
                named=named,
            )
        else:
            batch, unproved = (records, proof) if isinstance(proof, asyncio.Future) else (proof, None)
            append = proxy.appends.submit(
                tp,
                batch,
                produce_version=call.version,
                give_up_at=give_up_at,
                origin=origin,
                address=call.client_host,
                named=named,
                proof=unproved,
            )
        if append.done.done():
            self._take(at, append)
            return
        self._missing += 1
        self._pending[at] = append
        call.lease.hold()
        append.done.add_done_callback(lambda _: self._settled(at, append))

    def _settled(self, at: tuple[int, int], append: Append) -> None:
        # The frame may be let go of only now, even where the client was told long ago that time was up: the owner still
        # had it.
        self._call.lease.let_go()
        if append.done.cancelled() or self._pending.pop(at, None) is None:
            if not append.done.cancelled():
                append.done.exception()
            return
        self._take(at, append)
        self._missing -= 1
        if not self._missing:
            self._conclude()

    def _take(self, at: tuple[int, int], append: Append) -> None:
        index = self._request.topics[at[0]].partitions[at[1]][0]
        error = append.done.exception()
        if error is None:
            done = append.done.result()
            result = ProducedPartition(index, 0, done.base_offset, done.log_append_time_ms, done.log_start)
        elif isinstance(error, BmqError):
            result = _of_error(index, error)
        else:
            self._report_bug(append, error)
            result = _of_error(index, error)
        self._results[at[0]][at[1]] = result

    def _report_bug(self, append: Append, error: BaseException) -> None:
        """Clients send again at once: one traceback for each kind and interval."""
        proxy = self._proxy
        metrics.HANDLER_FAILURES.inc()
        left_out = proxy.complaints.due(("append", type(error)), now=proxy.loop.time())
        if left_out is not None:
            proxy.log.error(
                "append failed",
                request_id=self._call.request_id,
                partition=str(append.tp),
                left_out=left_out,
                exc_info=error,
            )

    def _give_up_waiting(self, left_ms: int) -> None:
        """The client's time is over: what no owner has goes to none any more; what one has is waited for, `left_ms`
        longer.
        """
        self._timer = None
        for at, append in list(self._pending.items()):
            self._proxy.appends.give_up_waiting(append)
            if append.done.cancelled():
                del self._pending[at]
                self._missing -= 1
                self._note_time_out(at, "No owner took it in time")
        if self._missing:
            self._timer = self._proxy.time_outs.add(left_ms, self._timed_out)
        else:
            self._conclude()

    def _timed_out(self) -> None:
        self._timer = None
        pending, self._pending = self._pending, {}
        for at, append in pending.items():
            self._note_time_out(at, "Not durable in time")
            self._proxy.appends.give_up(append)
        self._conclude()

    def _conclude(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._is_over is not None:
            if not self._is_over.done():
                self._is_over.set_result(None)
        elif self._answer is not None and not self._answer.done():
            self._answer.set_result(self._finished())

    def _note_time_out(self, at: tuple[int, int], message: str) -> None:
        index = self._request.topics[at[0]].partitions[at[1]][0]
        self._results[at[0]][at[1]] = _failed(index, int(ErrorCode.request_timed_out), message)

    def _finished(self) -> Answer:
        self._observe()
        return self._answered()

    def _observe(self) -> None:
        metrics.PRODUCE_SECONDS.observe(self._proxy.loop.time() - self._call.arrived)

    def _answered(self) -> Answer:
        if self._named is None and (one := self._results[0][0]) is not None:
            return _answer(self._call, self._request, [[one]])
        return _answer(
            self._call, self._request, [[one for one in results if one is not None] for results in self._results]
        )


class _InternalTopic(InvalidTopicName):
    """A client writes to a topic of the coordinators."""


class _NamedTwice(InvalidRequest):
    """A request has a second batch for a partition."""


def _of_error(index: int, error: BaseException) -> ProducedPartition:
    if isinstance(error, InvalidRecords):
        code = int(code_for(error))
        return ProducedPartition(index, code, record_errors=error.records, error_message=str(error))
    return _failed(index, int(code_for(error)), str(error) if isinstance(error, RequestError) else None)


def _failed(index: int, code: int, message: str | None) -> ProducedPartition:
    return ProducedPartition(index, code, error_message=message)


def _answer(call: Call, request: ProduceRequest, results: Sequence[Sequence[ProducedPartition]]) -> Answer:
    code = 0
    for several in results:
        for one in several:
            code = code or one.error_code
    if request.acks == 0:
        return Answer(parts=None, error=error_name(code), close=code not in (0, ErrorCode.request_timed_out))
    topics = [
        ProducedTopic(topic.name, topic.topic_id, found) for topic, found in zip(request.topics, results, strict=True)
    ]
    body = encode_produce_response(call.version, topics, throttle_ms=call.throttle_ms)
    return Answer(parts=(body,), size_bytes=len(body), error=error_name(code))
