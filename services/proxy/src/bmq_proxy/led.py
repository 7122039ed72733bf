"""What clients ask of the controller: by turns, and once one leads. A standby leads within some two seconds, and an
administrator's request is not refused for that.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from bmq.errors import ControllerUnavailable, NoLeader
from bmq_proxy.calls import Call
from bmq_proxy.proxy import Proxy

T = TypeVar("T")

LEADER_WAIT_S: Final = 5.0
"""From a request's arrival, however often it asks the controller; less where the request says so."""
ASK_AGAIN_S: Final = 0.1
CHANGE_WAIT_S: Final = 20.0
"""From a request's first question, for one that leads and cannot write. Less than clients wait for a request that says
no time of its own."""
CHANGE_WAIT_S_MAX: Final = 300.0


async def when_led(proxy: Proxy, call: Call, ask: Callable[[], Awaitable[T]], *, timeout_ms: int | None = None) -> T:
    """What the leading controller answers. Asks again only where nothing was applied.

    Raises what `ask` raises; ControllerUnavailable, with the remedy, where none leads or answers in time.
    """
    least_s = proxy.settings.write_timeout_ms_min / 1000
    in_all_s = CHANGE_WAIT_S if timeout_ms is None else min(max(timeout_ms / 1000, least_s), CHANGE_WAIT_S_MAX)
    return await proxy.patience.answered(
        call, lambda: _when_led(proxy, call, ask, timeout_ms), wait_s=in_all_s, late=ControllerUnavailable
    )


async def in_turn(proxy: Proxy, call: Call, ask: Callable[[], Awaitable[T]]) -> T:
    """What the controller answers, asked when it is this client's turn. Raises what `ask` raises."""
    async with proxy.operations.holding(party=call.client_host, sender=call.origin):
        return await ask()


async def _when_led(proxy: Proxy, call: Call, ask: Callable[[], Awaitable[T]], timeout_ms: int | None) -> T:
    wait_s = LEADER_WAIT_S if timeout_ms is None else min(LEADER_WAIT_S, max(0, timeout_ms) / 1000)
    until = call.arrived + wait_s
    while True:
        try:
            return await in_turn(proxy, call, ask)
        except NoLeader as error:
            left_s = until - proxy.loop.time()
            if left_s <= 0:
                raise ControllerUnavailable(
                    f"{error}: nothing was changed; try again once a controller leads (see bmq cluster status)"
                ) from None
        await asyncio.sleep(min(ASK_AGAIN_S, left_s))
