"""What this operator surely did not make: of an intent that it wrote itself, before it asked for anything that may have
come about. Values only.

A resource's intent is in its status before what it stands for is made, so that a lost answer leaves nothing ownerless.
What is there by then may still be somebody else's, made meanwhile. Of an intent that another operator wrote, which may
have asked, nobody knows: there its look decides.
"""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bmq_admin.errors import AdminProblem

INTENTS_MAX: Final = 10_000
_MAY_HAVE_COME_ABOUT: Final = frozenset((408, 409, 429))
"""Refusals that a request gets, too, which was handed on twice and came about the first time."""


class Intents:
    """By the uid of a resource; the oldest are forgotten."""

    def __init__(self) -> None:
        self._may_be_made: OrderedDict[str, bool] = OrderedDict()

    def mean(self, uid: str) -> None:
        """The intent is being written, and nothing was asked for before."""
        self._may_be_made.setdefault(uid, False)
        while len(self._may_be_made) > INTENTS_MAX:
            self._may_be_made.popitem(last=False)

    def made_none(self, uid: str) -> bool:
        """Whether nothing that is there can be its own."""
        return self._may_be_made.get(uid) is False

    @contextmanager
    def asking(self, uid: str) -> Iterator[None]:
        """Around a request that makes it: only a plain refusal tells that it did not."""
        before = self._may_be_made.get(uid)
        if before is not None:
            self._may_be_made[uid] = True
        try:
            yield
        except AdminProblem as problem:
            if before is not None and 400 <= problem.status <= 499 and problem.status not in _MAY_HAVE_COME_ABOUT:
                self._may_be_made[uid] = before
            raise
