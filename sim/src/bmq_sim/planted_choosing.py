"""Bugs to plant in batches that are parted among lanes: in which order the parts are written, and when a client hears.

As in bmq_sim.planted: each patches the real function and is what a hurried change would do.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final
from unittest.mock import patch

from bmq_broker.partitions import beginnings
from bmq_proxy import parting

Plant = Callable[[], AbstractContextManager[Any]]


def _base_is_enough() -> AbstractContextManager[Any]:
    """The lanes get their parts in the background: a client is answered once the base has its own."""
    real = parting.Parting._write_parts

    async def write_parts(self: parting.Parting, *args: Any) -> None:
        task = asyncio.get_running_loop().create_task(_alone(real(self, *args)), name="write parts later")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    return patch.object(parting.Parting, "_write_parts", new=write_parts)


async def _alone(writing: Any) -> None:
    await asyncio.gather(writing, return_exceptions=True)


def _nobody_is_asked() -> AbstractContextManager[Any]:
    """The lanes get their parts of whatever comes."""

    async def ask(*_: Any) -> None:
        return

    return patch.object(parting.Parting, "_ask", new=ask)


def _unknown_begins_anywhere() -> AbstractContextManager[Any]:
    """As in Kafka: a producer that is not known may have been forgotten."""
    return patch.object(beginnings.Beginnings, "check", new=lambda *_, **__: None)


PLANTED_CHOOSING: Final[Mapping[str, Plant]] = {
    "base-is-enough": _base_is_enough,
    "nobody-is-asked": _nobody_is_asked,
    "unknown-begins-anywhere": _unknown_begins_anywhere,
}
