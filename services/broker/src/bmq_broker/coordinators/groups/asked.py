"""Who waits for an answer of one coordinator: each request by its ticket, until it is answered, given up, or late."""

import asyncio
from collections.abc import Collection, Sequence
from functools import partial
from typing import Final

from bmq.errors import NotOwner, NotReady
from bmq.fairness.grouping import in_groups
from bmq.fairness.overdue import Overdue
from bmq_broker.coordinators.groups.requests import Reply, Ticket
from bmq_broker.coordinators.groups.tally import ELEMENT_WORK_BYTES
from bmq_broker.coordinators.groups.turns import Turns

Replies = Sequence[tuple[Ticket, Reply | None]]
REPLIES_PER_TURN: Final = 200
"""Where more wait for the same step, the members of a large group, others have their turn before the next go on."""
STORED_WITHIN_S: Final = 10.0
"""So long an answer waits for the store: no longer than clients wait for it."""


class Asked:
    """An answer is *decided* once it is there and waits for the store alone."""

    def __init__(self, partition: int, turns: Turns) -> None:
        self._partition = partition
        self._turns = turns
        self._waiting: dict[Ticket, asyncio.Future[Reply | None]] = {}
        self._decided: Overdue[Ticket] = Overdue(STORED_WITHIN_S, self._are_late)
        self._next_ticket = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self) -> tuple[Ticket, "asyncio.Future[Reply | None]"]:
        """One more; `over` follows."""
        ticket = Ticket(self._next_ticket)
        self._next_ticket += 1
        future: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = future
        return ticket, future

    def over(self, ticket: Ticket) -> None:
        """It was answered, or whoever asked waits no more."""
        future = self._waiting.pop(ticket)
        self._decided.discard(ticket)
        if not future.cancel() and not future.cancelled():
            future.exception()  # Seen: the step's own error is what the caller gets.

    def decided(self, replies: Replies) -> None:
        """These are what is answered, once it is durable."""
        for ticket, _ in replies:
            if ticket in self._waiting:
                self._decided.add(ticket)

    def answer(self, replies: Replies) -> None:
        """Whoever waits for them goes on, in several turns of the loop where they are many."""
        if len(replies) <= REPLIES_PER_TURN:
            self.deliver(replies)
            return
        for some in in_groups(replies, REPLIES_PER_TURN):
            self._turns.then(ELEMENT_WORK_BYTES * len(some), partial(self.deliver, some))

    def deliver(self, replies: Replies) -> None:
        """Whoever waits goes on in the loop's next turn, with an answer to encode and send."""
        for ticket, reply in replies:
            future = self._waiting.get(ticket)
            if future is not None and not future.done():
                future.set_result(reply)

    def only_held(self, held: Collection[Ticket]) -> None:
        """All others that wait, but for what is decided, are told to ask again: their group was made anew."""
        kept = {*held, *self._decided}
        for ticket, future in self._waiting.items():
            if ticket not in kept and not future.done():
                future.set_exception(
                    NotOwner(
                        f"a group of coordinator {self._partition} was made anew from its log: find its coordinator "
                        "again"
                    )
                )

    def end(self, error: BaseException) -> None:
        """Nobody is answered any more: each is told why."""
        self._decided.clear()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(NotOwner(f"group coordinator {self._partition} has ended: {error}"))

    def _are_late(self, tickets: list[Ticket]) -> None:
        """What is decided may still become durable later: who asks again finds it."""
        for ticket in tickets:
            future = self._waiting.get(ticket)
            if future is not None and not future.done():
                future.set_exception(
                    NotReady(
                        f"the store did not take what group coordinator {self._partition} decided within "
                        f"{STORED_WITHIN_S:g} s"
                    )
                )
