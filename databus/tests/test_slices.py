"""Many messages, or reports of them, are handed over in slices: no turn of the loop has all of them."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

from confluent_kafka import KafkaError
from tests.waiting import until_async

from bmq.runtime.system import SystemClock, SystemRng
from bmq_databus.channels.channel import Channel, Manner
from bmq_databus.errors import BadMessage
from bmq_databus.messages.forms import NewMessage
from bmq_databus.producing.producer import DELIVERED_MAX, Producing, Reports
from bmq_databus.producing.senders import Senders
from bmq_databus.producing.spools import Spools
from bmq_databus.producing.writing import SLICE_MESSAGES, Writing
from bmq_databus.spool.frames import Once, Spooled

MANY = 2_345


class CountedLoop(asyncio.SelectorEventLoop):
    turn = 0

    def _run_once(self) -> None:
        self.turn += 1
        super()._run_once()  # type: ignore[misc]


def turn_of(loop: asyncio.AbstractEventLoop) -> int:
    return cast(CountedLoop, loop).turn


class Cluster:
    """Takes all at once, and notes in which turns of the loop."""

    def __init__(self) -> None:
        self.taken: Counter[int] = Counter()
        self.values: list[bytes | None] = []

    def away(self, manner: Manner) -> None:
        return None

    def produce(self, manner: Manner, messages: Sequence[Spooled], reports: Reports, *, first: int, end: int) -> int:
        for place in range(first, end):
            self.taken[turn_of(asyncio.get_running_loop())] += 1
            self.values.append(messages[place].value)
            reports(place, None, 0, len(self.values) - 1)
        return end


class Disk:
    """Spools that have room."""

    async def enter(
        self, channel: Channel, messages: list[Spooled], *, patience_s: float, once: Once | None = None
    ) -> asyncio.Future[None]:
        assert len(messages) == MANY
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done


def news(text: str) -> list[NewMessage | BadMessage]:
    return [NewMessage(key=None, value=b"%s %d" % (text.encode(), n)) for n in range(MANY)]


def run(main: Any) -> Any:
    with asyncio.Runner(loop_factory=CountedLoop) as runner:
        return runner.run(main())


def test_messages_go_to_the_producer_in_slices_in_their_order_and_a_single_one_does_not_wait_for_them() -> None:
    async def main() -> None:
        channel = Channel(name="orders", topic="orders")
        writing, cluster = (
            Writing({"orders": channel}, spool_folder=None, clock=SystemClock(), rng=SystemRng()),
            Cluster(),
        )
        writing._direct = cast(Senders, cluster)
        large = [asyncio.ensure_future(writing.write(channel, news(one), patience_s=1)) for one in ("a", "b")]
        await asyncio.sleep(0)
        before = len(cluster.values)
        outcomes = await writing.write(channel, [NewMessage(key=None, value=b"single")], patience_s=1)
        assert [one["status"] for one in outcomes] == [200]
        assert len(cluster.values) - before <= 2 * SLICE_MESSAGES + 1
        for done in await asyncio.gather(*large):
            assert [one["status"] for one in done] == [200] * MANY
        assert max(cluster.taken.values()) <= 2 * SLICE_MESSAGES + 1
        for one in (b"a", b"b"):
            assert [value for value in cluster.values if value and value.startswith(one + b" ")] == [
                b"%s %d" % (one, n) for n in range(MANY)
            ]

    run(main)


def test_messages_that_are_accepted_are_told_in_slices() -> None:
    async def main() -> None:
        channel = Channel(name="clicks", topic="clicks", acknowledgement="accepted")
        writing, told = (
            Writing({"clicks": channel}, spool_folder=None, clock=SystemClock(), rng=SystemRng()),
            Counter[int](),
        )
        writing._spools = cast(Spools, Disk())
        loop = asyncio.get_running_loop()

        def settle(at: int, outcome: dict[str, Any]) -> None:
            told[turn_of(loop)] += 1

        await writing.hand_over(channel, news("a"), settle, patience_s=1)
        await until_async(lambda: sum(told.values()) == MANY, "all outcomes", every_s=0)
        assert max(told.values()) <= SLICE_MESSAGES

    run(main)


def test_reports_of_the_producer_are_delivered_in_slices_and_in_their_order() -> None:
    async def main() -> None:
        producing = Producing({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}, broken=lambda why: None)
        told: Counter[int] = Counter()
        offsets: list[int] = []
        loop = asyncio.get_running_loop()

        def reports(place: int, error: KafkaError | None, partition: int, offset: int) -> None:
            told[turn_of(loop)] += 1
            offsets.append(offset)

        for offset in range(MANY):
            producing._came.append(((), reports, 0, None, 0, offset))
        producing._deliver_soon()
        await until_async(lambda: len(offsets) >= MANY, "all reports", every_s=0)
        assert offsets == list(range(MANY))
        assert max(told.values()) <= DELIVERED_MAX
        assert await producing.close(patience_s=1) == 0

    run(main)
