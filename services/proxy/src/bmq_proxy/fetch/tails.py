"""Asking the owners of many partitions for their tails at once, with one wait over all of them."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from bmq.errors import BmqError
from bmq.fairness.turns import NOBODY, Party
from bmq.roles.owner import Owner, TailAnswer, TailRequest, TailRoom
from bmq.values import TopicPartition
from bmq_proxy.fetch.room import NO_ROOM

ASKED_MAX: Final = 8
"""How often several owners are asked to wait for one request. Each time at least their part of what is missing
comes."""


async def read_tails(
    owner_for: Callable[[TopicPartition], Owner],
    requests: Sequence[TailRequest],
    *,
    min_bytes: int,
    max_bytes: int,
    max_wait_ms: int,
    room: TailRoom | None = None,
    party: Party = NOBODY,
) -> list[TailAnswer]:
    """One answer per request, in order; what an owner raises becomes the error of its partitions.

    One owner waits by itself. Several are looked at once first, and then wait together: until there are `min_bytes` of
    all of them, an answer that says something else, or the time is up. Meanwhile nothing is held of what was fetched.
    """
    answers: list[TailAnswer | None] = [None] * len(requests)
    shares: dict[int, tuple[Owner, list[int]]] = {}
    for i, request in enumerate(requests):
        try:
            owner = owner_for(request.tp)
        except BmqError as error:
            answers[i] = TailAnswer(tp=request.tp, error=error.with_traceback(None))  # which has these answers
        else:
            shares.setdefault(id(owner), (owner, []))[1].append(i)

    async def ask(owner: Owner, indexes: list[int], *, min_bytes: int, max_wait_ms: int) -> None:
        asked = [requests[i] for i in indexes]
        try:
            got = await owner.read_tail(
                asked, min_bytes=min_bytes, max_bytes=max_bytes, max_wait_ms=max_wait_ms, room=room, party=party
            )
        except BmqError as error:
            got = [TailAnswer(tp=request.tp, error=error.with_traceback(None)) for request in asked]
        for i, answer in zip(indexes, got, strict=True):
            answers[i] = answer

    async def look() -> None:
        await asyncio.gather(*(ask(owner, indexes, min_bytes=0, max_wait_ms=0) for owner, indexes in shares.values()))

    async def wait(owner: Owner, indexes: list[int], *, min_bytes: int, max_wait_ms: int) -> None:
        asked = [requests[i] for i in indexes]
        with suppress(BmqError):  # who looks afterwards meets it
            await owner.read_tail(
                asked, min_bytes=min_bytes, max_bytes=max_bytes, max_wait_ms=max_wait_ms, room=NO_ROOM, party=party
            )

    failed = any(answer is not None for answer in answers)
    if len(shares) == 1:
        [(owner, indexes)] = shares.values()
        await ask(owner, indexes, min_bytes=min_bytes, max_wait_ms=0 if failed else max_wait_ms)
        return _complete(answers)
    if not shares and not failed:
        await asyncio.sleep(max_wait_ms / 1000)  # An empty request waits its time out, as any other without news.
        return []
    await look()
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + max_wait_ms / 1000
    for _ in range(ASKED_MAX if shares else 0):
        left_ms = int((deadline_s - loop.time()) * 1000)
        found = _complete(answers)
        missing_bytes = _missing_bytes(requests, found, min_bytes)
        if missing_bytes <= 0 or left_ms <= 0:
            break
        # When they have what is missing together, one of them has its part of it.
        part_bytes = -(-missing_bytes // len(shares))
        wanted = [
            (owner, indexes, part_bytes + sum(_size(found[i]) for i in indexes)) for owner, indexes in shares.values()
        ]
        found.clear()
        answers[:] = [None] * len(requests)
        if room is not None:
            room.leave()
        tasks = [
            loop.create_task(wait(owner, indexes, min_bytes=least, max_wait_ms=left_ms))
            for owner, indexes, least in wanted
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await look()
    return _complete(answers)


def _size(answer: TailAnswer) -> int:
    return answer.size_bytes + answer.unsent_bytes


def _missing_bytes(requests: Sequence[TailRequest], answers: Sequence[TailAnswer], min_bytes: int) -> int:
    """How many more are waited for; 0 where one of the answers is to be given at once."""
    if any(
        answer.error is not None or request.offset < answer.tail_start
        for request, answer in zip(requests, answers, strict=True)
    ):
        return 0
    return min_bytes - sum(map(_size, answers))


def _complete(answers: Sequence[TailAnswer | None]) -> list[TailAnswer]:
    complete = [answer for answer in answers if answer is not None]
    assert len(complete) == len(answers)
    return complete
