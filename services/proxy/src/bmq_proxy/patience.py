"""How long a request waits for what owners and coordinators have from the store.

A store that is down is waited out by whoever needs it, for as long as it takes. A client is told to ask again before it
gives up itself: then it knows what is going on, and nothing is done any more for somebody who has gone.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeVar

import structlog

from bmq.clocks.in_time import in_time
from bmq.errors import NotReady
from bmq.fairness.log_limit import RateLimited
from bmq.wire.apis import ApiKey
from bmq_proxy.calls import Call

T = TypeVar("T")
log = structlog.get_logger("bmq.proxy")

COMPLAIN_EVERY_S: Final = 10.0


class Lack(NamedTuple):
    """What is likely missing where a request is not answered in time: as the log says it, and as who asked is told."""

    logged: str
    told: str


STORE: Final = Lack(
    "requests are not answered in time: is the object store down or full?",
    "what it needs of the object store was not there in time: the store does not answer, or takes nothing "
    "(bmq cluster status tells); what was to be changed may be yet: look, and ask again",
)
TURN: Final = Lack(
    "look-ups by time are not answered in time: their brokers are busy with look-ups and open batches for them, each "
    "address in its turn, or the object store is slow",
    "its turn did not come in time: the broker is busy with look-ups by time, or the object store is slow; ask again",
)


class Patience:
    """One proxy's. Counts from a request's first question, for all that it asks: it may name thousands of
    partitions.
    """

    def __init__(self, wait_ms: int) -> None:
        self._wait_s = wait_ms / 1000
        self._loop = asyncio.get_running_loop()  # kept: asking for it is a system call
        self._complaints = RateLimited(interval_s=COMPLAIN_EVERY_S)

    async def answered(
        self,
        call: Call,
        ask: Callable[[], Awaitable[T]],
        *,
        wait_s: float | None = None,
        late: Callable[[str], Exception] = NotReady,
        lack: Lack = STORE,
    ) -> T:
        """What `ask` answers; it is cancelled where the time is up. `wait_s`: where the request itself says how long,
        with its first question. `lack`: of what.

        Raises `late` then, also where the time was up before, and what `ask` raises.
        """
        if call.patient_until is None:
            call.patient_until = self._loop.time() + (self._wait_s if wait_s is None else wait_s)
        return await in_time(call.patient_until, ask, lambda: late(self._told(call, lack)))

    def _told(self, call: Call, lack: Lack) -> str:
        api = ApiKey(call.api_key).name.lower()
        left_out = self._complaints.due((api, lack.logged), now=self._loop.time())
        if left_out is not None:
            log.warning(lack.logged, api=api, left_out=left_out)
        return f"{api}: {lack.told}"
