"""Fetch, key 1, versions 4 to 18: sessions (KIP-227), topic ids from version 13. Missing: aborted transactions (there
are none yet).

Who poses as a replica is refused (CVE-2018-1288): replicas do not exist here.

What is gone does not keep a request from waiting for the rest of it, as with Kafka; and what only time can cure, or
nothing, is said after a pause: clients ask again at once.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from functools import partial
from uuid import UUID

from typing_extensions import Buffer

from bmq.errors import BmqError, RequestError, UnknownTopic
from bmq.wire.apis import SERVED, ApiKey
from bmq.wire.chosen_codes import code_for
from bmq.wire.error_codes import ErrorCode
from bmq.wire.fetch import (
    SESSIONS_FROM,
    TOPIC_IDS_FROM,
    FetchedPartition,
    FetchedTopic,
    FetchRequest,
    encode_fetch_response,
    parse_fetch,
)
from bmq_proxy import metrics
from bmq_proxy.api import Route, error_name
from bmq_proxy.bulk import WIDE_ELEMENTS
from bmq_proxy.calls import Answer, Call, Pending
from bmq_proxy.fetch.answers import Found, Read, Result
from bmq_proxy.fetch.sessions import (
    Fetching,
    InvalidSessionEpoch,
    PartitionKey,
    SessionNotFound,
    SessionTopicIdMismatch,
    Shown,
    TopicKey,
    Wanted,
)
from bmq_proxy.proxy import Proxy
from bmq_proxy.topics import find_partition

READ_COMMITTED = 1
MAX_WAIT_MS_MAX = 300_000
WIDE_WAIT_MS_MAX = 1_000
"""How long a request waits for records that names more than WIDE_ELEMENTS partitions, or that had to wait for its
turn."""
FAILED_WAIT_MS = 100
"""How long a request without records waits for some of its other partitions before it says that one cannot be read at
present."""


def route(proxy: Proxy) -> Route:
    """Serves Fetch: reads record batches, within sessions or without."""
    return Route(api=SERVED[ApiKey.FETCH], begin=partial(begin, proxy), ends_with_client=True, delays_stop=False)


def begin(proxy: Proxy, call: Call, body: Buffer) -> Pending:
    """Raises WireError."""
    if proxy.bulk.is_wide(memoryview(body).nbytes):
        return asyncio.get_running_loop().create_task(_wide(proxy, call, body), name="Fetch")
    started = _started(proxy, call, _parsed(proxy, call, body), body)
    return started if isinstance(started, Answer) else asyncio.get_running_loop().create_task(started, name="Fetch")


async def _wide(proxy: Proxy, call: Call, body: Buffer) -> Answer:
    """Parsed beside the event loop, and only as many at a time as all wide requests may be."""
    async with proxy.bulk.parsing(call, memoryview(body).nbytes):
        parsed = [await proxy.bulk.apart(call, partial(_parsed, proxy, call, body))]
    started = _started(proxy, call, parsed.pop(), body)  # nothing of it may be kept alive while waiting
    return started if isinstance(started, Answer) else await started


def _parsed(proxy: Proxy, call: Call, body: Buffer) -> FetchRequest:
    return parse_fetch(call.version, body, partitions_max=proxy.settings.limits.fetch_partitions_max)


def _started(proxy: Proxy, call: Call, request: FetchRequest, body: Buffer) -> Answer | Coroutine[None, None, Answer]:
    """What is to be run, or an answer that needs no run."""
    if request.replica_id >= 0:
        return _refused(call, int(ErrorCode.invalid_request), request)
    try:
        fetching = _session(proxy, call, request)
    except SessionNotFound:
        return _refused(call, int(ErrorCode.fetch_session_id_not_found))
    except InvalidSessionEpoch:
        return _refused(call, int(ErrorCode.invalid_fetch_session_epoch))
    except SessionTopicIdMismatch:
        return _refused(call, int(ErrorCode.fetch_session_topic_id_error))
    return _run(proxy, call, replace(request, topics=[], forgotten=[]), fetching, body)


def _wanted(request: FetchRequest) -> list[Wanted]:
    return [
        Wanted(
            _key(topic.name, topic.topic_id),
            one.partition,
            one.fetch_offset,
            one.max_bytes,
            one.current_leader_epoch,
            one.last_fetched_epoch,
        )
        for topic in request.topics
        for one in topic.partitions
    ]


def _session(proxy: Proxy, call: Call, request: FetchRequest) -> Fetching:
    forgotten: list[PartitionKey] = [
        (_key(topic.name, topic.topic_id), index) for topic in request.forgotten for index in topic.partitions
    ]
    return proxy.sessions.begin(
        now_ms=int(asyncio.get_running_loop().time() * 1000),
        session_id=request.session_id,
        session_epoch=request.session_epoch,
        wanted=_wanted(request),
        forgotten=forgotten,
        topic_ids=call.version >= TOPIC_IDS_FROM,
        lane=proxy.lane_number,
    )


def _key(name: str | None, topic_id: UUID | None) -> TopicKey:
    return (topic_id or UUID(int=0)) if name is None else name


async def _run(proxy: Proxy, call: Call, request: FetchRequest, fetching: Fetching, body: Buffer) -> Answer:
    async with proxy.bulk.fetching(call, fetching.count, waits=fetching.set_aside) as at_leisure:
        if fetching.is_set_aside:
            again = partial(_parsed, proxy, call, body)
            fetching.take_up(
                _wanted(await proxy.bulk.apart(call, again) if proxy.bulk.is_wide(memoryview(body).nbytes) else again())
            )
        # Others may wait for their turn: who asks for so much hears soon that there is nothing yet.
        wait_ms = request.max_wait_ms if at_leisure else min(request.max_wait_ms, WIDE_WAIT_MS_MAX)
        return await _answered(proxy, call, replace(request, max_wait_ms=wait_ms), fetching, in_turns=not at_leisure)


async def _answered(proxy: Proxy, call: Call, request: FetchRequest, fetching: Fetching, *, in_turns: bool) -> Answer:
    started = asyncio.get_running_loop().time()
    committed = request.isolation_level == READ_COMMITTED
    found, result = await _read(proxy, call, request, fetching)
    try:
        topics: list[FetchedTopic] = []
        told: list[int] = []
        codes: list[int] = []
        for first in range(0, len(found), WIDE_ELEMENTS):
            if in_turns:
                await proxy.bulk.turn(call)
            some = found[first : first + WIDE_ELEMENTS]
            codes += map(_code, some)
            changed = fetching.changed(
                [_shown(one, code) for one, code in zip(some, codes[first:], strict=True)], first=first
            )
            _add(
                topics,
                [
                    (
                        fetching.wanted[i],
                        _fetched(fetching.wanted[i].partition, found[i], codes[i], committed=committed),
                    )
                    for i in changed
                ],
            )
            told += changed
        encode = partial(encode_fetch_response, call.version, topics, session_id=fetching.session_id)
        parts = await proxy.bulk.apart(call, encode) if len(told) > WIDE_ELEMENTS else encode()
        code = next((codes[i] for i in told if codes[i]), 0)
        size_bytes = sum([memoryview(part).nbytes for part in parts])
    except BaseException:
        result.release()
        raise
    metrics.FETCH_SECONDS.observe(asyncio.get_running_loop().time() - started)
    return Answer(parts=parts, size_bytes=size_bytes, error=error_name(code), flushed=result.release)


async def _read(proxy: Proxy, call: Call, request: FetchRequest, fetching: Fetching) -> tuple[list[Found], Result]:
    """One Found for each partition that is wanted, and the Result whose memory is held."""
    image = proxy.image
    found: list[Found | None] = []
    reads = []
    pace = proxy.bulk.pace(call)
    for wanted in fetching.wanted:
        await pace.step()
        try:
            tp = find_partition(image, wanted.topic, wanted.partition)
        except BmqError as error:
            found.append(Found(error=error.with_traceback(None)))  # which has this list
            continue
        found.append(None)
        reads.append(
            Read(
                tp=tp,
                offset=wanted.offset,
                max_bytes=max(wanted.max_bytes, 0),
                current_leader_epoch=wanted.current_leader_epoch,
                last_fetched_epoch=wanted.last_fetched_epoch,
            )
        )
    result = await _read_with_pause(proxy, call, request, reads, wanted=bool(found))
    read = iter(result.found)
    return [next(read) if one is None else one for one in found], result


async def _read_with_pause(
    proxy: Proxy, call: Call, request: FetchRequest, reads: Sequence[Read], *, wanted: bool
) -> Result:
    """One Found for each. Where there is nothing but errors that time may cure, it is waited for the others a little
    longer.
    """
    min_bytes = min(max(request.min_bytes, 0), proxy.settings.fetch_bytes_max)
    max_bytes = min(max(request.max_bytes, 0), proxy.settings.fetch_bytes_max)
    max_wait_ms = min(max(request.max_wait_ms, 0), MAX_WAIT_MS_MAX)
    pause_ms = min(max_wait_ms, FAILED_WAIT_MS) if min_bytes else 0
    if not reads and wanted:
        max_wait_ms = pause_ms
    party = (call.client_host, call.client_id)
    result = await proxy.reader.read(
        reads, min_bytes=min_bytes, max_bytes=max_bytes, max_wait_ms=max_wait_ms, party=party
    )
    failed = [one.error is not None and _may_pass(one.error) for one in result.found]
    if (
        not pause_ms
        or not any(failed)
        or not all(fails or _is_empty(one) for fails, one in zip(failed, result.found, strict=True))
    ):
        return result
    result.release()
    readable = [read for read, fails in zip(reads, failed, strict=True) if not fails]
    again = await proxy.reader.read(
        readable, min_bytes=min_bytes, max_bytes=max_bytes, max_wait_ms=pause_ms, party=party
    )
    rest = iter(again.found)
    return replace(again, found=[one if fails else next(rest) for one, fails in zip(result.found, failed, strict=True)])


def _may_pass(error: BmqError) -> bool:
    """Whether nothing of the request itself is wrong: the client can only ask again, and look for another leader
    meanwhile.
    """
    return isinstance(error, UnknownTopic) or not isinstance(error, RequestError)


def _is_empty(found: Found) -> bool:
    return found.error is None and not found.size_bytes and found.diverging_epoch < 0


def _code(found: Found) -> int:
    return 0 if found.error is None else int(code_for(found.error))


def _shown(found: Found, code: int) -> Shown:
    return Shown(found.high_watermark, found.log_start, found.size_bytes > 0, code != 0 or found.diverging_epoch >= 0)


def _fetched(partition: int, found: Found, code: int, *, committed: bool) -> FetchedPartition:
    return FetchedPartition(
        partition=partition,
        error_code=code,
        high_watermark=found.high_watermark,
        last_stable_offset=found.last_stable_offset,
        log_start_offset=found.log_start,
        aborted=() if committed else None,
        records=found.parts,
        diverging_epoch=(found.diverging_epoch, found.diverging_end_offset) if found.diverging_epoch >= 0 else None,
    )


def _add(topics: list[FetchedTopic], partitions: Sequence[tuple[Wanted, FetchedPartition]]) -> None:
    """In the order in which they were served, neighbours of one topic together."""
    last: TopicKey | None = (topics[-1].topic_id or topics[-1].name) if topics else None
    for wanted, fetched in partitions:
        if wanted.topic != last:
            last = wanted.topic
            name = last if isinstance(last, str) else None
            topics.append(FetchedTopic(name, last if isinstance(last, UUID) else None, []))
        served = topics[-1].partitions
        assert isinstance(served, list)
        served.append(fetched)


def _refused(call: Call, code: int, request: FetchRequest | None = None) -> Answer:
    """The answer that refuses a request; in old versions, which have no error of their own, its partitions say it."""
    asked = () if request is None or call.version >= SESSIONS_FROM else request.topics
    topics = [
        FetchedTopic(
            topic.name,
            topic.topic_id,
            [FetchedPartition(partition=one.partition, error_code=code) for one in topic.partitions],
        )
        for topic in asked
    ]
    parts = encode_fetch_response(call.version, topics, error_code=code)
    return Answer(parts=parts, size_bytes=sum([memoryview(part).nbytes for part in parts]), error=error_name(code))
