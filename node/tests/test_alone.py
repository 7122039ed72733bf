"""A process that is the whole cluster starts though its store is slow, and ends where another one takes that."""

import asyncio

import pytest
from tests.bare_client import AsyncBareClient
from tests.waiting import until_async

from bmq.errors import BmqError, ControllerUnavailable, Fenced, StoreUnavailable
from bmq.runtime.open_store import open_store
from bmq.runtime.system import SystemClock, SystemRng
from bmq.storage.durable import cancelled
from bmq.wire.apis import ApiKey
from bmq_broker.main import BrokerRole
from bmq_controller.settings import ControllerSettings
from bmq_node.alone import REGISTERED_AGAIN_MAX, TAKEN_OVER, Alone
from bmq_node.configuration.node_settings import NodeSettings
from bmq_node.node import Node


class SlowBroker:
    """Its registration takes longer than anybody is let wait for, so often."""

    def __init__(self, often: int, error: Exception | None = None) -> None:
        self.left = often
        self.starts = 0
        self.error = error or ControllerUnavailable("the stream could not be sealed within 30 s: look, and try again")

    async def start(self) -> None:
        self.starts += 1
        if self.left:
            self.left -= 1
            raise self.error


def start(broker: SlowBroker) -> None:
    asyncio.run(Alone.registered(object(), broker.start))  # type: ignore[arg-type]


def test_a_registration_that_takes_too_long_is_tried_again() -> None:
    broker = SlowBroker(2)
    start(broker)
    assert broker.starts == 3


def test_a_start_that_comes_to_nothing_says_so_in_the_end() -> None:
    broker = SlowBroker(1_000)
    with pytest.raises(ControllerUnavailable, match="try again"):
        start(broker)
    assert broker.starts == REGISTERED_AGAIN_MAX + 1


def test_what_trying_again_does_not_mend_ends_the_start_at_once() -> None:
    broker = SlowBroker(1, StoreUnavailable("no such bucket"))
    with pytest.raises(StoreUnavailable):
        start(broker)
    assert broker.starts == 1


def test_the_first_ends_and_says_why_where_a_second_takes_over_its_store() -> None:
    settings = NodeSettings(listen="127.0.0.1:0", controller=ControllerSettings(leading_check_s=0.1))

    async def main() -> None:
        store = open_store("memory://")
        first, second = (Node(store, clock=SystemClock(), rng=SystemRng(), settings=settings) for _ in range(2))
        try:
            async with asyncio.timeout(30):
                await first.start()
                assert first.leading is not None and not first.ended.done()
                await second.start()
                reason = await first.ended
            assert second.leading is not None and not second.ended.done()
        finally:
            await first.stop(grace_s=0)
            await second.stop(grace_s=0)
            store.close()
        assert "another" in reason, reason

    asyncio.run(main())


def test_a_fence_means_that_another_has_the_store_and_anything_else_that_it_may_be_started_again() -> None:
    def said(error: BmqError) -> str:
        return Alone.why_it_ends(object(), error)  # type: ignore[arg-type]

    assert said(Fenced("sealed")) == f"{TAKEN_OVER}: sealed"
    assert said(BmqError("the WAL broke")) == "the WAL broke; start it again, nothing acknowledged is lost"


def test_clients_are_answered_though_the_broker_takes_long_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bmq_node.alone.CURRENT_S", 0.05)
    may_start = asyncio.Event()
    real = BrokerRole.start

    async def start(self: BrokerRole) -> None:
        await may_start.wait()
        await real(self)

    monkeypatch.setattr(BrokerRole, "start", start)

    async def main() -> None:
        store = open_store("memory://")
        node = Node(store, clock=SystemClock(), rng=SystemRng(), settings=NodeSettings(listen="127.0.0.1:0"))
        starting = asyncio.ensure_future(node.start())
        try:
            async with asyncio.timeout(30):
                await until_async(lambda: node.proxy, "a listener")
                assert node.proxy is not None
                client = await AsyncBareClient.connect(node.proxy.host, node.proxy.port)
                client.send(ApiKey.API_VERSIONS, 3, {"client_software_name": "t", "client_software_version": "1"})
                _, answer = await client.receive()
                assert answer.error_code == 0
                assert not starting.done()
                client.close()
                may_start.set()
                await starting
        finally:
            await cancelled([starting])
            await node.stop(grace_s=0)
            store.close()

    asyncio.run(main())
