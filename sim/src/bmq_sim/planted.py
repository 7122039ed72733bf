"""Bugs to plant in the real code, to prove that the simulator finds them. Each patches the real function: a rename breaks it loudly."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final
from unittest.mock import patch

from bmq.storage import flatlog, stream

Plant = Callable[[], AbstractContextManager[Any]]


def _completes_out_of_order() -> AbstractContextManager[Any]:
    """An object counts as durable although one below it is still on its way."""

    def complete(self: stream.StreamWriter) -> None:
        while self._ended is None and self._created:
            number = min(self._created)
            del self._created[number]
            self._durable_below = max(self._durable_below, number + 1)
            self._on_durable(number)

    return patch.object(stream.StreamWriter, "_complete", autospec=True, side_effect=complete)


def _claims_without_listing() -> AbstractContextManager[Any]:
    """A claim counts although a newer entry stands above it."""

    async def newest(self: flatlog.FlatLog, at_least: int = flatlog.FIRST_NUMBER) -> flatlog.Entry | None:
        return await real(self, flatlog.FIRST_NUMBER) if at_least == flatlog.FIRST_NUMBER else await self.read(at_least)

    real = flatlog.FlatLog.newest
    return patch.object(flatlog.FlatLog, "newest", autospec=True, side_effect=newest)


PLANTED: Final[Mapping[str, Plant]] = {
    "complete-out-of-order": _completes_out_of_order,
    "claim-without-listing": _claims_without_listing,
}


@contextlib.contextmanager
def plant(name: str | None) -> Iterator[None]:
    """The bug is in the code until the block ends. None: no bug."""
    if name is None:
        yield
        return
    with PLANTED[name]():
        yield
