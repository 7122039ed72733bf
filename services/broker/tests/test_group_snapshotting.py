"""When a coordinator's snapshot is begun and given up."""

import asyncio
import gc
from types import SimpleNamespace
from typing import Any

from bmq.errors import UnknownOutcome
from bmq_broker.coordinators.groups.durable import DurableState
from bmq_broker.coordinators.groups.settings import GroupSettings
from bmq_broker.coordinators.groups.snapshotting import Snapshotting


def test_one_that_is_given_up_before_it_began_leaves_no_failure_that_nobody_heard_of() -> None:
    async def main() -> list[str]:
        told: list[str] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context["message"]))
        durable: list[asyncio.Future[None]] = [loop.create_future()]
        log: Any = SimpleNamespace(end_offset=lambda: 5, barrier=lambda: durable[0])
        snapshotting = Snapshotting(log, GroupSettings(snapshot_record_interval=1), lambda _: None)
        snapshotting.count(5, 5)
        snapshotting.take_if_due(DurableState())
        await snapshotting.close()
        durable[0].set_exception(UnknownOutcome("the broker stopped"))
        await asyncio.sleep(0)
        durable.clear()
        gc.collect()
        await asyncio.sleep(0)
        return told

    assert asyncio.run(main()) == []
