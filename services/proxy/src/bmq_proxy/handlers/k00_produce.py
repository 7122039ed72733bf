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
from typing import Final, NamedTuple

from typing_extensions import Buffer

from bmq.config.topic_config import LANE_HEADER
from bmq.errors import BmqError, InvalidBatch, InvalidRecords, InvalidRequest, InvalidTopicName, RequestError
from bmq.metadata.image import Topic
from bmq.naming.names import is_internal
from bmq.roles.owner import Appended, AppendedAlike, Proved
from bmq.values import TopicPartition
from bmq.wire.apis import SERVED, ApiKey
from bmq.wire.chosen_codes import code_for
from bmq.wire.error_codes import ErrorCode
from bmq.wire.frames import encode_response_frame
from bmq.wire.limits import PRODUCE_PARTITIONS_MAX
from bmq.wire.produce import (
    ProducedPartition,
    ProducedTopic,
    ProduceRequest,
    ProduceTopic,
    TooManyPartitions,
    encode_produce_response,
    parse_produce,
)
from bmq_proxy import metrics
from bmq_proxy.api import Route, error_name
from bmq_proxy.appends import Append, Taken
from bmq_proxy.beginnings import Place
from bmq_proxy.calls import Alike, Answer, Call, Pending
from bmq_proxy.proofs import Proof
from bmq_proxy.proxy import Proxy
from bmq_proxy.refused import Named
from bmq_proxy.time_outs import TimeOut
from bmq_proxy.topics import find_topic, partition_of

_API: Final = SERVED[ApiKey.PRODUCE]
ACKS = (-1, 0, 1)
NOT_CLOSING: Final = frozenset((0, int(ErrorCode.request_timed_out)))
"""Errors of requests that want no answers for which their connection is not closed."""
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
            request = request_of(call, body, partitions_max=inline_max)
        except TooManyPartitions:
            pass  # for one turn
        else:
            call.partitions = partitions_of(call, request)
            return _refused(call, request) or _Producing(proxy, call, request).start()
    place = proxy.beginnings.enter(call.origin)
    if call.alike is not None:
        call.partitions = call.requests
        return proxy.loop.create_task(_behind(proxy, call, call.alike, place), name="Produce")
    call.partitions = inline_max
    return proxy.loop.create_task(_in_turns(proxy, call, body, place), name="Produce")


def request_of(call: Call, body: Buffer, *, partitions_max: int = PRODUCE_PARTITIONS_MAX) -> ProduceRequest:
    """What a call asks for; of several requests that are alike the first. Raises TooManyPartitions, or another
    WireError.
    """
    if call.alike is not None:
        return call.alike.request
    return parse_produce(call.version, body, partitions_max=partitions_max)


def partitions_of(call: Call, request: ProduceRequest) -> int:
    """How many it has batches for; each of several requests counts."""
    if call.alike is not None:
        return len(call.alike.batches)
    topics = request.topics
    return len(topics[0].partitions) if len(topics) == 1 else sum([len(topic.partitions) for topic in topics])


async def _behind(proxy: Proxy, call: Call, alike: Alike, place: Place) -> Answer:
    """Begins what is little by itself, behind something of its connection that is begun in turns."""
    try:
        await place.reached()
        await proxy.bulk.turn(call)
        pending = _refused(call, alike.request) or _Producing(proxy, call, alike.request).start()
    finally:
        place.over()
    return pending if isinstance(pending, Answer) else await pending


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
    failed = [_failed(index, *refusal) for topic in request.topics for index, _ in topic.partitions]
    return _answer(call, request, failed * call.requests)


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
    """What one call writes, on its way: batches for several partitions, or those of several requests for one."""

    __slots__ = (
        "_answer",
        "_answered",
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
        self._results: list[ProducedPartition | None] = [None] * partitions_of(call, request)
        self._pending: dict[Append | Taken, _Place] = {}
        """Which batches each has."""
        self._missing = 0
        self._named: set[TopicPartition] = set()
        """Where several partitions are named."""
        self._answer: asyncio.Future[Answer] | None = None
        self._answered = 0
        """How many of several requests are."""
        self._is_over: asyncio.Future[None] | None = None
        """Resolves when nothing is waited for any more; None but for a request that was begun in turns, whose answer is
        made apart."""
        self._timeout_ms = min(max(request.timeout_ms, 0), TIMEOUT_MS_MAX)
        self._timer: TimeOut | None = None
        self._give_up_at = 0.0

    def start(self) -> Pending:
        """Submits everything before it returns."""
        self._give_up_at = self._proxy.loop.time() + min(self._timeout_ms, self._proxy.settings.produce_retry_ms) / 1000
        if self._call.alike is not None:
            self._submit_alike(self._call.alike)
        else:
            for _ in self._submitted(partitions_max=0, bytes_max=0):
                pass
        if not self._missing:
            return self._finished()
        self._answer = answer = self._proxy.loop.create_future()
        self._set_timer()
        self._answer_first()
        return answer

    async def start_in_turns(self) -> None:
        """Returns once everything is submitted. Its time begins then."""
        settings, call = self._proxy.settings, self._call
        self._give_up_at = float("inf")
        self._missing = 1  # itself
        for _ in self._submitted(partitions_max=settings.limits.produce_turn_partitions, bytes_max=TURN_BYTES):
            await self._proxy.bulk.turn(call)
        self._missing -= 1
        self._give_up_at = self._proxy.loop.time() + min(self._timeout_ms, settings.produce_retry_ms) / 1000
        for append in self._pending:
            append.give_up_at = self._give_up_at

    async def answer_apart(self) -> Answer:
        """The answer to a request that was started in turns, once there is nothing to wait for."""
        if self._missing:
            self._is_over = self._proxy.loop.create_future()
            self._set_timer()
            await self._is_over
        self._observe(len(self._results))
        return await self._proxy.bulk.apart(self._call, self._whole)

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

    def _submit_alike(self, alike: Alike) -> None:
        topic = self._request.topics[0]
        batches = alike.batches
        self._submit((_key(topic), topic.partitions[0][0]), 0, batches)
        self._proxy.produced_bytes.inc(sum([len(records) for records in batches]))

    def _submitted(self, *, partitions_max: int, bytes_max: int) -> Iterator[None]:
        """Submits everything; stops whenever that was enough for a turn of the loop."""
        partitions, size_bytes, at = 0, 0, 0
        for topic in self._request.topics:
            key = _key(topic)
            for index, records in topic.partitions:
                size_bytes += 0 if records is None else records.nbytes
                self._submit((key, index), at, (records,))
                at += 1
                partitions += 1
                if partitions_max and (partitions >= partitions_max or size_bytes >= bytes_max):
                    self._proxy.produced_bytes.inc(size_bytes)
                    partitions, size_bytes = 0, 0
                    yield
        self._proxy.produced_bytes.inc(size_bytes)

    def _submit(self, named: Named, first: int, batches: Sequence[memoryview | None]) -> None:
        """Submits batches for one partition, which are number `first` and the next ones of all."""
        key, index = named
        try:
            found = find_topic(self._proxy.image, key)
            tp = partition_of(found, index)
            if is_internal(found.name):
                raise _InternalTopic(f"{found.name} is written by bmq alone")
            if self._call.alike is None:
                self._check_named_once(tp, found.name)
        except BmqError as error:
            for at, records in enumerate(batches, first):
                self._refuse(at, named, records, error if records else _EmptyBatch())
            return
        is_parted = bool(found.configs.get(LANE_HEADER)) and not self._proxy.lane_number
        proved: list[Proved] = []
        begin = at = first
        for at, records in enumerate(batches, first):
            proof = self._proof(at, named, tp, records)
            if isinstance(proof, Proved) and not is_parted:
                proved.append(proof)
                continue
            self._send(named, tp, begin, proved)
            proved, begin = [], at + 1
            if proof is not None and records is not None:
                place = _Place(at, 1, index)
                if isinstance(proof, Proved) or is_parted:
                    self._wait_for(place, self._submit_parted(named, found, tp, records, proof))
                else:
                    self._wait_for(place, self._submit_one(named, tp, records, proof))
        self._send(named, tp, begin, proved)

    def _submit_parted(self, named: Named, topic: Topic, tp: TopicPartition, records: Buffer, proof: Proof) -> Append:
        call = self._call
        return self._proxy.parting.submit(
            topic,
            tp,
            records,
            proof,
            produce_version=call.version,
            give_up_at=self._give_up_at,
            origin=call.origin,
            address=call.client_host,
            named=named,
        )

    def _check_named_once(self, tp: TopicPartition, name: str) -> None:
        """No client names a partition twice; and what waits for one is looked through each time that some of it is
        given up.
        """
        if tp in self._named:
            raise _NamedTwice(
                f"{name}-{tp.partition} is in this request already: send one batch for a partition in each request"
            )
        self._named.add(tp)

    def _proof(self, at: int, named: Named, tp: TopicPartition, records: memoryview | None) -> Proof | None:
        """None: the batch is refused."""
        proxy, call = self._proxy, self._call
        try:
            if not records:
                raise _EmptyBatch
            if proxy.appends.refused:
                proxy.appends.refused.check(call.origin, named, records)
            return proxy.proofs.begin(tp, records, party=call.client_host, origin=call.origin)
        except BmqError as error:
            self._refuse(at, named, records, error)
            return None

    def _refuse(self, at: int, named: Named, records: Buffer | None, error: BmqError) -> None:
        if records:
            self._proxy.appends.refused.note(self._call.origin, named, records, error)
        self._results[at] = _of_error(named[1], error)

    def _send(self, named: Named, tp: TopicPartition, first: int, proved: Sequence[Proved]) -> None:
        """As many at once as their owner takes, and what it does not take by itself."""
        call, appends = self._call, self._proxy.appends
        at = 0
        while at < len(proved):
            records = proved[at].records
            try:
                if at and appends.refused:  # one before it may be meanwhile
                    appends.refused.check(call.origin, named, records)
            except BmqError as error:
                self._refuse(first + at, named, records, error)
                at += 1
                continue
            taken = appends.submit_alike(
                tp,
                proved[at:] if at else proved,
                produce_version=call.version,
                give_up_at=self._give_up_at,
                origin=call.origin,
                address=call.client_host,
                named=named,
            )
            if taken is not None:
                place = _Place(first + at, len(taken.batches), named[1])
                taken.told = self._told
                self._begin_waiting(place, taken)
                at += place.batches
                continue
            self._wait_for(_Place(first + at, 1, named[1]), self._submit_one(named, tp, records, None))
            at += 1

    def _submit_one(
        self, named: Named, tp: TopicPartition, records: Buffer, proof: "asyncio.Future[Buffer] | None"
    ) -> Append:
        call = self._call
        return self._proxy.appends.submit(
            tp,
            records,
            produce_version=call.version,
            give_up_at=self._give_up_at,
            origin=call.origin,
            address=call.client_host,
            named=named,
            proof=proof,
        )

    def _wait_for(self, place: "_Place", append: Append) -> None:
        if append.done.done():
            self._take(place, append)
        else:
            self._begin_waiting(place, append)
            append.done.add_done_callback(lambda _: self._settled(append))

    def _begin_waiting(self, place: "_Place", append: Append | Taken) -> None:
        self._missing += 1
        self._pending[append] = place
        self._call.lease.hold()

    def _told(self, taken: Taken, outcome: AppendedAlike | Sequence[Append]) -> None:
        """What their owner took at once is durable, or goes on one by one."""
        place = self._pending.pop(taken, None)
        if place is None:
            for append in () if isinstance(outcome, AppendedAlike) else outcome:
                append.done.add_done_callback(_nobody_waits)
        else:
            self._missing -= 1
            if isinstance(outcome, AppendedAlike):
                if place.batches == len(self._results) and self._answer_all(outcome):
                    self._call.lease.let_go()
                    return
                index, results = place.partition, self._results
                base_offsets, append_time_ms, log_start = outcome
                for at, base_offset in enumerate(base_offsets, place.first):
                    results[at] = ProducedPartition(index, 0, base_offset, append_time_ms, log_start)
            else:
                for at, append in enumerate(outcome, place.first):
                    self._wait_for(_Place(at, 1, place.partition), append)
            self._go_on()
        self._call.lease.let_go()

    def _settled(self, append: Append) -> None:
        # The frame may be let go of only now, even where the client was told long ago that time was up: the owner still
        # had it.
        self._call.lease.let_go()
        place = None if append.done.cancelled() else self._pending.pop(append, None)
        if place is None:
            _nobody_waits(append.done)
            return
        self._take(place, append)
        self._missing -= 1
        self._go_on()

    def _go_on(self) -> None:
        """Answers, as far as there is something to answer with."""
        if not self._missing:
            self._conclude()
        else:
            self._answer_first()

    def _take(self, place: "_Place", append: Append) -> None:
        error = append.done.exception()
        if error is None:
            done = append.done.result()
            result = ProducedPartition(place.partition, 0, done.base_offset, done.log_append_time_ms, done.log_start)
        else:
            if not isinstance(error, BmqError):
                self._report_bug(append, error)
            result = _of_error(place.partition, error)
        self._results[place.first] = result

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
        for append, place in list(self._pending.items()):
            self._proxy.appends.give_up_waiting(append)
            if isinstance(append, Append) and append.done.cancelled():
                del self._pending[append]
                self._missing -= 1
                self._note_time_out(place, "No owner took it in time")
        if self._missing:
            self._timer = self._proxy.time_outs.add(left_ms, self._timed_out)
            self._answer_first()
        else:
            self._conclude()

    def _timed_out(self) -> None:
        self._timer = None
        pending, self._pending = self._pending, {}
        for append, place in pending.items():
            self._note_time_out(place, "Not durable in time")
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

    def _note_time_out(self, place: "_Place", message: str) -> None:
        for at in range(place.first, place.first + place.batches):
            self._results[at] = _failed(place.partition, int(ErrorCode.request_timed_out), message)

    def _answer_first(self) -> None:
        """Those of several requests that have an outcome do not wait for the others."""
        answer = self._answer
        if self._call.requests == 1 or answer is None or answer.done():
            return
        if self._request.acks == 0:
            if any(one is not None and one.error_code not in NOT_CLOSING for one in self._results):
                answer.set_result(self._answer_to(0, len(self._results)))
            return
        begin = self._answered
        end = next((at for at in range(begin, len(self._results)) if self._results[at] is None), begin)
        if end > begin:
            self._observe(end - begin)
            self._answered = end
            self._answer = self._proxy.loop.create_future()
            found = self._answer_to(begin, end)
            found.rest = self._answer
            answer.set_result(found)

    def _answer_all(self, durable: AppendedAlike) -> bool:
        """Answers all requests at once, where one answer fits them."""
        alike, answer, call = self._call.alike, self._answer, self._call
        if alike is None or answer is None or answer.done() or self._request.acks == 0:
            return False
        if self._timer is not None:
            self._timer.cancel()
        requests = len(durable.base_offsets)
        self._observe(requests)
        frames = alike.form.answers(
            alike.correlation_ids,
            durable.base_offsets,
            log_append_time_ms=durable.log_append_time_ms,
            log_start=durable.log_start,
            throttle_ms=call.throttle_ms,
        )
        answer.set_result(Answer(parts=None, frames=frames, size_bytes=len(frames), requests=requests))
        return True

    def _finished(self) -> Answer:
        self._observe(len(self._results) - self._answered)
        return self._answer_to(self._answered, len(self._results))

    def _whole(self) -> Answer:
        return self._answer_to(0, len(self._results))

    def _observe(self, requests: int) -> None:
        took_s = self._proxy.loop.time() - self._call.arrived
        metrics.PRODUCE_SECONDS.observe_many(took_s, 1 if self._call.alike is None else requests)

    def _answer_to(self, begin: int, end: int) -> Answer:
        results = [one for one in self._results[begin:end] if one is not None]
        return _answer(self._call, self._request, results, begin)


def _nobody_waits(done: "asyncio.Future[Appended]") -> None:
    """Its client was told that time is up."""
    if not done.cancelled():
        done.exception()


class _Place(NamedTuple):
    """Which batches of a call an append has: so many from the first on, and for which partition."""

    first: int
    batches: int
    partition: int


class _EmptyBatch(InvalidBatch):
    """Nothing is to be written."""

    def __init__(self) -> None:
        super().__init__("a Produce request without a record batch")


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


def _key(topic: ProduceTopic) -> object:
    """As its client names it."""
    return topic.name if topic.topic_id is None else topic.topic_id


def _answer(call: Call, request: ProduceRequest, results: Sequence[ProducedPartition], first: int = 0) -> Answer:
    """To a request with so many batches; or to so many requests that are alike."""
    code = next((one.error_code for one in results if one.error_code), 0)
    if request.acks == 0:
        failed = [error_name(one.error_code) for one in results if one.error_code] if call.alike is not None else ()
        close = any(one.error_code not in NOT_CLOSING for one in results)
        return Answer(parts=None, error=error_name(code), close=close, failed=failed, requests=len(results))
    if call.alike is not None:
        return _answer_alike(call, call.alike, request.topics[0], results, first, code=code)
    topics, begin = [], 0
    for topic in request.topics:
        end = begin + len(topic.partitions)
        topics.append(ProducedTopic(topic.name, topic.topic_id, results[begin:end]))
        begin = end
    body = encode_produce_response(call.version, topics, throttle_ms=call.throttle_ms)
    return Answer(parts=(body,), size_bytes=len(body), error=error_name(code))


def _answer_alike(
    call: Call, alike: Alike, topic: ProduceTopic, results: Sequence[ProducedPartition], first: int, *, code: int
) -> Answer:
    """To some of its requests, from the first on; `code` is the first error."""
    header_version = _API.response_header_version(call.version)
    frames: list[Buffer] = []
    ids = alike.correlation_ids[first : first + len(results)]
    for correlation_id, one in zip(ids, results, strict=True):
        produced = ProducedTopic(topic.name, topic.topic_id, (one,))
        body = encode_produce_response(call.version, [produced], throttle_ms=call.throttle_ms)
        frames += encode_response_frame(header_version, correlation_id, (body,))
    whole = b"".join(frames)
    failed = [error_name(one.error_code) for one in results if one.error_code] if code else ()
    return Answer(
        parts=None,
        frames=whole,
        size_bytes=len(whole),
        requests=len(results),
        error=error_name(code),
        failed=failed,
    )
