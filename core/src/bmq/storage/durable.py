"""One create that survives unknown outcomes, and the waiting between tries.

Owns what a writer does about an outcome that it does not know: it sends the same bytes again, and tells its own object
from another's by the nonce. What a conflict with another's object means is the caller's to say. Monotonic time is the
running loop's.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, Protocol, TypeVar

import structlog
from typing_extensions import Buffer

from bmq.errors import Conflict, NotApplied, ObjectMissing, StoreError, StoreUnavailable, UnknownOutcome
from bmq.ports import ObjectStore, Rng
from bmq.storage.envelope import ENVELOPE_SIZE_BYTES, nonce_of
from bmq.values import Nonce

T = TypeVar("T")

UNKNOWN_OUTCOMES_MAX: Final = 3
BACKOFF_FIRST_S: Final = 0.05
BACKOFF_LIMIT_S: Final = 2.0
TROUBLE_LOG_INTERVAL_S: Final = 10.0
HEDGE_AFTER_MIN_S: Final = 0.02
"""A store that answers faster than this is not worth a second request."""
HEDGES_PER_CREATE: Final = 0.1
"""So many creates in the long run are sent twice, no more: a store that is slow for all would only get slower."""
HEDGES_SAVED_MAX: Final = 8.0

_log = structlog.get_logger(__name__)


class Trouble(Protocol):
    """Hears of each failure that is going to be tried again."""

    def __call__(self, error: StoreError, /) -> None: ...


class TroubleLog:
    """Logs failures: of each kind of error the first at once, then at most one line in ten seconds with the number of
    those in between.

    All of a process share that limit: a store that is down fails for every partition at once.
    """

    def __init__(self, doing: str) -> None:
        self._doing = doing

    def __call__(self, error: StoreError, /) -> None:
        now_s = asyncio.get_running_loop().time()
        kind = type(error).__name__
        said_s, unsaid = _said.get(kind, (float("-inf"), 0))
        if said_s <= now_s < said_s + TROUBLE_LOG_INTERVAL_S:
            _said[kind] = (said_s, unsaid + 1)
            return
        _said[kind] = (now_s, 0)
        _log.warning("store trouble, trying again", doing=self._doing, error=str(error), kind=kind, unsaid=unsaid)


_said: Final[dict[str, tuple[float, int]]] = {}
"""By kind of error: when it was last logged, in the loop's time, and how many were not since."""


class Backoff:
    """Waits between tries: doubling, with full jitter, from 50 ms to 2 s."""

    def __init__(self, rng: Rng, *, first_s: float = BACKOFF_FIRST_S, limit_s: float = BACKOFF_LIMIT_S) -> None:
        self._rng = rng
        self._next_s = first_s
        self._limit_s = limit_s

    async def wait(self, *, until_s: float | None = None) -> None:
        """Sleeps once, not beyond the loop time `until_s`."""
        delay_s = self.next_s()
        if until_s is not None:
            delay_s = min(delay_s, max(0.0, until_s - asyncio.get_running_loop().time()))
        await asyncio.sleep(delay_s)

    def next_s(self) -> float:
        """How long the next wait is, in seconds, for who waits for something else besides."""
        delay_s = self._next_s * (0.5 + 0.5 * self._rng.random())
        self._next_s = min(self._next_s * 2, self._limit_s)
        return delay_s


async def when_available(operation: Callable[[], Awaitable[T]], *, rng: Rng, trouble: Trouble) -> T:
    """The result of a get, list, head or delete, tried again for as long as the store is unavailable. The caller
    cancels.
    """
    backoff = Backoff(rng)
    while True:
        try:
            return await operation()
        except StoreUnavailable as error:
            trouble(error)
        await backoff.wait()


async def together(operations: Iterable[Coroutine[object, object, T]]) -> list[T]:
    """The results, in order, of operations that run at once. The first failure (or cancellation) ends the others before
    it is raised.
    """
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(operation) for operation in operations]
    if not tasks:
        return []
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        failed = [task for task in tasks if task.done() and not task.cancelled() and task.exception() is not None]
        return [task.result() for task in failed or tasks]
    finally:
        await cancelled(tasks)


async def cancelled(tasks: Iterable["asyncio.Task[T]"]) -> None:
    """Cancels the tasks and waits for their end, whatever it is."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class LatencyWindow:
    """How long recent creates of one writer took, and whether another may be sent twice."""

    def __init__(self, *, size: int = 128, samples_min: int = 16) -> None:
        self._seconds: deque[float] = deque(maxlen=size)
        self._samples_min = samples_min
        self._hedges = 1.0
        self._since_sorted = 0
        self._hedge_after_s: float | None = None

    def record(self, seconds: float) -> None:
        """One more create that succeeded, after `seconds`."""
        self._seconds.append(seconds)
        self._hedges = min(HEDGES_SAVED_MAX, self._hedges + HEDGES_PER_CREATE)
        self._since_sorted += 1
        if self._since_sorted >= self._samples_min:
            self._since_sorted = 0
            ordered = sorted(self._seconds)
            # Where the p95 is close to the median, a create beyond it will be over before a second one could be.
            self._hedge_after_s = max(
                ordered[len(ordered) * 95 // 100], 2 * ordered[len(ordered) // 2], HEDGE_AFTER_MIN_S
            )

    def hedge_after_s(self) -> float | None:
        """After how long a create is to be sent a second time: the recent p95, or twice the median; None while too few
        are known.
        """
        return self._hedge_after_s

    def take_hedge(self) -> bool:
        """Whether one more may be sent twice now; counts it."""
        if self._hedges < 1:
            return False
        self._hedges -= 1
        return True


async def create_once(
    store: ObjectStore,
    key: str,
    parts: Sequence[Buffer],
    *,
    nonce: Nonce,
    rng: Rng,
    latency: LatencyWindow | None = None,
    deadline_s: float | None = None,
    trouble: Trouble | None = None,
) -> None:
    """Makes the object, whose envelope carries `nonce`. Durable when it returns.

    Not applied: sent again with backoff, forever or until the loop time `deadline_s`. Unknown: the same bytes are sent
    again; after the third unknown outcome UnknownOutcome. The key exists: one's own nonce is success, another's
    Conflict. With `latency`, a create slower than the recent p95 is sent a second time. After cancellation the outcome
    is unknown.
    """
    loop = asyncio.get_running_loop()
    trouble = trouble if trouble is not None else TroubleLog(f"create {key}")
    backoff = Backoff(rng)
    unknown = 0
    while True:
        try:
            return await _send(store, key, parts, latency=latency)
        except Conflict as conflict:
            found = await when_available(lambda: _nonce_at(store, key), rng=rng, trouble=trouble)
            if found == nonce:
                return None
            if found is not None:
                raise
            unknown += 1
            error: StoreError = UnknownOutcome(f"{key}: the store says that it exists, but it cannot be read")
            error.__cause__ = conflict
        except UnknownOutcome as caught:
            unknown += 1
            error = caught
        except NotApplied as caught:
            error = caught
        trouble(error)
        if unknown < UNKNOWN_OUTCOMES_MAX:
            await backoff.wait(until_s=deadline_s)
        if unknown >= UNKNOWN_OUTCOMES_MAX or (deadline_s is not None and loop.time() >= deadline_s):
            if unknown and not isinstance(error, UnknownOutcome):
                raise UnknownOutcome(f"{key}: an earlier try had an unknown outcome") from error
            raise error


async def _nonce_at(store: ObjectStore, key: str) -> Nonce | None:
    """The nonce of the object at a key that exists; None where there is nothing after all. Foreign bytes have a nonce
    of their own: none.
    """
    try:
        first_bytes = await store.get(key, length=ENVELOPE_SIZE_BYTES)
    except ObjectMissing:
        return None
    return nonce_of(first_bytes) or Nonce(b"")


async def _send(store: ObjectStore, key: str, parts: Sequence[Buffer], *, latency: LatencyWindow | None) -> None:
    """One create, or two of the same bytes where the first is slow. Success wins, then Conflict, UnknownOutcome,
    NotApplied.
    """
    if latency is None:
        return await store.create(key, parts)
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    hedge_after_s = latency.hedge_after_s()
    if hedge_after_s is None:
        await store.create(key, parts)
    else:
        await _send_hedged(store, key, parts, latency=latency, hedge_after_s=hedge_after_s)
    latency.record(loop.time() - began_s)
    return None


async def _send_hedged(
    store: ObjectStore, key: str, parts: Sequence[Buffer], *, latency: LatencyWindow, hedge_after_s: float
) -> None:
    loop = asyncio.get_running_loop()
    running = {loop.create_task(_create(store, key, parts), name=f"create {key}")}
    worst: StoreError | None = None
    wait_s: float | None = hedge_after_s
    try:
        while running:
            done, running = await asyncio.wait(running, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
            outcomes = [task.result() for task in done]
            if None in outcomes:
                return
            for outcome in outcomes:
                if isinstance(outcome, Conflict):
                    raise outcome
                if worst is None or isinstance(outcome, UnknownOutcome):
                    worst = outcome
            if not done and wait_s is not None and latency.take_hedge():
                running.add(loop.create_task(_create(store, key, parts), name=f"create {key} again"))
            wait_s = None
    finally:
        await cancelled(running)
    assert worst is not None
    raise worst


async def _create(store: ObjectStore, key: str, parts: Sequence[Buffer]) -> StoreError | None:
    """The outcome as a value: None is success. So a task that loses the race leaves no exception behind."""
    try:
        await store.create(key, parts)
    except (Conflict, NotApplied, UnknownOutcome) as error:
        return error
    return None


def settle(future: "asyncio.Future[Any]", error: BaseException | None, result: object = None) -> None:
    """Resolves a future that may have been cancelled meanwhile: with the result, unless there is an error."""
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
