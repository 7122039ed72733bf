"""Which partition is opened next, where many are to be: by turns of those who want them, so that who asks for tens of
thousands has nobody wait for all of those.
"""

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Final

from bmq.fairness.turns import Party, Places

ITSELF: Final[Party] = ("broker", "")
"""Who wants what a broker opens by itself: what earlier owners left, however many that are."""
COORDINATORS: Final[Party] = ("coordinators", "")
"""Who wants what coordinators are made of."""
WANTING_MAX: Final = 8
"""As many parties that want one partition may bring its turn; all of them have it then."""


def reading(party: Party) -> Party:
    """Whose a partition's opening is that is asked for by who reads."""
    return ("reads", party[0]), party[1]


def writing(party: Party) -> Party:
    """And by who writes."""
    return ("writes", party[0]), party[1]


class Wanted:
    """One opening, and who wants it."""

    __slots__ = ("parties", "turn")

    def __init__(self, party: Party) -> None:
        self.parties = {party[0]: party}
        self.turn: asyncio.Future[Hashable] | None = None
        """While it waits for a place."""


class OpeningTurns:
    """Places for so many openings at once."""

    def __init__(self, at_once: int) -> None:
        self._places = Places(at_once)

    def want(self, wanted: Wanted, party: Party) -> None:
        """The party wants it, too: it has the first place that is the turn of any who want it."""
        if party[0] in wanted.parties or len(wanted.parties) >= WANTING_MAX:
            return
        wanted.parties[party[0]] = party
        if wanted.turn is not None and not wanted.turn.done():
            self._places.queue(wanted.turn, party=party[0], sender=party[1])

    @asynccontextmanager
    async def holding(self, wanted: Wanted) -> AsyncIterator[None]:
        """A place, once there is one."""
        turn = wanted.turn = asyncio.get_running_loop().create_future()
        for party, sender in wanted.parties.values():
            if not turn.done():
                self._places.queue(turn, party=party, sender=sender)
        whose = await self._places.turn_of(turn)
        try:
            yield
        finally:
            self._places.leave(party=whose)
