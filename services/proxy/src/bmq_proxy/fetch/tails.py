"""Asking the owners of many partitions for their tails at once, with one wait over all of them."""

import asyncio
from collections.abc import Callable, Sequence

from bmq.errors import BmqError
from bmq.roles.owner import Owner, TailAnswer, TailRequest
from bmq.values import TopicPartition


async def read_tails(
    owner_for: Callable[[TopicPartition], Owner], requests: Sequence[TailRequest], *, min_bytes: int, max_bytes: int, max_wait_ms: int
) -> list[TailAnswer]:
    """One answer per request, in order; what an owner raises becomes the error of its partitions.

    One owner waits by itself. Several are looked at once first, and then wait together until the first of them has something.
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
            got = await owner.read_tail(asked, min_bytes=min_bytes, max_bytes=max_bytes, max_wait_ms=max_wait_ms)
        except BmqError as error:
            got = [TailAnswer(tp=request.tp, error=error.with_traceback(None)) for request in asked]
        for i, answer in zip(indexes, got, strict=True):
            answers[i] = answer

    failed = any(answer is not None for answer in answers)
    if len(shares) == 1:
        [(owner, indexes)] = shares.values()
        await ask(owner, indexes, min_bytes=min_bytes, max_wait_ms=0 if failed else max_wait_ms)
        return _complete(answers)
    if not shares and not failed:
        await asyncio.sleep(max_wait_ms / 1000)  # An empty request waits its time out, as any other without news.
        return []
    await asyncio.gather(*(ask(owner, indexes, min_bytes=0, max_wait_ms=0) for owner, indexes in shares.values()))
    if shares and max_wait_ms > 0 and not _enough(requests, _complete(answers), min_bytes):
        tasks = [
            asyncio.get_running_loop().create_task(ask(owner, indexes, min_bytes=1, max_wait_ms=max_wait_ms)) for owner, indexes in shares.values()
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    return _complete(answers)


def _enough(requests: Sequence[TailRequest], answers: Sequence[TailAnswer], min_bytes: int) -> bool:
    size_bytes = 0
    for request, answer in zip(requests, answers, strict=True):
        if answer.error is not None or request.offset < answer.tail_start:
            return True
        size_bytes += answer.size_bytes
    return size_bytes >= min_bytes


def _complete(answers: Sequence[TailAnswer | None]) -> list[TailAnswer]:
    complete = [answer for answer in answers if answer is not None]
    assert len(complete) == len(answers)
    return complete
