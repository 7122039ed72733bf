"""One commit of a consumer in the lane, with as many tries as a client makes, and what the ledger learns of it."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from bmq_sim.client import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    ILLEGAL_GENERATION,
    NOT_COORDINATOR,
    REBALANCE_IN_PROGRESS,
    RETRIABLE,
    THROTTLING_QUOTA_EXCEEDED,
    UNKNOWN_MEMBER_ID,
    ConnectionLost,
    SimClient,
)
from bmq_sim.history import History
from bmq_sim.programs.falling.ledger import LANE, Ledger

TRIES_MAX: Final = 5
_IS_OVER: Final = frozenset({ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS})
_GOES_ON: Final = frozenset(
    {*RETRIABLE, NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, THROTTLING_QUOTA_EXCEEDED}
)


async def commit(
    send: Callable[[], Awaitable[int]],
    values: Sequence[bytes],
    *,
    group: str,
    client: SimClient,
    ledger: Ledger,
    history: History,
    is_certain: Callable[[], bool] = lambda: True,
) -> bool:
    """Whether it was taken. `send` asks once for the error code, or raises ConnectionLost; `is_certain`: whether what
    is taken now cannot have gone on meanwhile.
    """
    for attempt in range(1, TRIES_MAX + 1):
        try:
            code = await send()
        except ConnectionLost:
            code = -1
        if not code:
            if is_certain():
                ledger.handled(values, group)
            else:
                ledger.maybe_handled(values)
            return True
        if code in _IS_OVER and attempt == 1:
            return False  # it certainly was not taken
        if code in _IS_OVER:
            break
        if code not in _GOES_ON and code != -1:
            history.refused.append(f"a commit in lane {LANE} was told {code}")
        await client.back_off(attempt)
    ledger.maybe_handled(values)
    return False
