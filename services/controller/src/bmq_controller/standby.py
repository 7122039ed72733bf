"""A controller among several: it follows the metadata log, leads when the log stands still, and follows again once
it is deposed.

Who leads is decided by the claim in the log alone. How long the log stood still only decides when to try.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import structlog

from bmq.clocks.clock_guard import ClockGuard
from bmq.errors import BmqError, Fenced
from bmq.metadata.feed import MetadataFeed
from bmq.metadata.follower import MetadataFollower, Poll
from bmq.metadata.journal import Position
from bmq.metadata.records import AnyRecord, LeaderAlive, LeaderElected, NodeRegistered
from bmq.ports import Clock, ObjectStore, Rng
from bmq.storage.durable import cancelled
from bmq.values import NodeId
from bmq_controller import metrics
from bmq_controller.controller import LeadingController
from bmq_controller.current import CurrentController
from bmq_controller.leader import ControllerLeader
from bmq_controller.settings import ControllerSettings

_log = structlog.get_logger(__name__)


class Silence:
    """How long nodes have been silent, by what leaders wrote: at their last sign of life, because no lease runs without
    a leader.
    """

    def __init__(self) -> None:
        self._first_s: float | None = None
        self._last_s = 0.0
        self._heard_s: dict[NodeId, float] = {}
        self.resigned = asyncio.Event()
        """Set while the newest leader has said its last word."""

    def seen(self, records: Sequence[AnyRecord]) -> None:
        """The records of one more entry."""
        now_s = asyncio.get_running_loop().time()
        for record in records:
            match record:
                case LeaderAlive(heard=heard, resigns=resigns):
                    if resigns:
                        self.resigned.set()
                    self._last_s = now_s
                    self._first_s = now_s if self._first_s is None else self._first_s
                    for node_id in heard:
                        self._heard_s[NodeId(node_id)] = now_s
                case LeaderElected():
                    self.resigned.clear()
                case NodeRegistered(node_id=node_id):
                    self._heard_s[NodeId(node_id)] = now_s
                case _:
                    pass

    def of(self, nodes: Sequence[NodeId]) -> Mapping[NodeId, float]:
        """Seconds, of each of the nodes; nothing where no leader said whom it had heard."""
        first_s = self._first_s
        if first_s is None:
            return {}
        return {node_id: max(0.0, self._last_s - self._heard_s.get(node_id, first_s)) for node_id in nodes}


class Standby:
    """One controller process's whole life. `controller` is of use while this one leads; `feed` is the node's image all
    the time.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        node_id: NodeId,
        clock: Clock,
        rng: Rng,
        settings: ControllerSettings,
        feed: MetadataFeed,
        poll: Poll | None,
        host: str,
        port: int,
        on_ended: Callable[[str], None],
        loaded: Position | None = None,
    ) -> None:
        """`loaded`: what was read of the metadata before.

        `on_ended(reason)` is called once where neither following nor leading is possible any more; never after `stop`.
        """
        self._store = store
        self._node_id = node_id
        self._clock = clock
        self._rng = rng
        self._settings = settings
        self._feed = feed
        self._poll = poll
        self._host = host
        self._port = port
        self._on_ended = on_ended
        self._loaded_before = loaded
        self._loaded = asyncio.Event()
        self._restarted = True
        """Whether this process has neither followed nor led before."""
        self._task: asyncio.Task[None] | None = None
        self.controller = CurrentController(feed, node_id=node_id)

    async def start(self) -> None:
        """Returns once the image is there. Waits out a store that is down. Raises FormatError."""
        loop = asyncio.get_running_loop()
        self._task = task = loop.create_task(self._run(), name="controller standby")
        loaded = loop.create_task(self._loaded.wait(), name="controller loads")
        try:
            await asyncio.wait((task, loaded), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await cancelled((task,))
            raise
        finally:
            await cancelled((loaded,))
        if task.done():
            task.result()
        task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """Follows no more, or commits what is under way and leads no more."""
        if self._task is not None:
            self._task.remove_done_callback(self._ended)
            await cancelled((self._task,))

    async def _run(self) -> None:
        position, self._loaded_before = self._loaded_before, None
        while True:
            position, silent_s = await self._follow(position)
            position = await self._lead(position, silent_s)

    async def _follow(self, start: Position | None) -> tuple[Position, Mapping[NodeId, float]]:
        """Until this one may try to lead. What it knows then: the image, and how long each node has been silent."""
        silence = Silence()
        follower = MetadataFollower(
            self._store,
            rng=self._rng,
            feed=self._feed,
            poll=self._poll,
            interval_s=self._settings.standby_look_s,
            quiet_s=self._settings.standby_quiet_s,
            seen=silence.seen,
        )
        await follower.load(start)
        self._loaded.set()
        following = asyncio.get_running_loop().create_task(follower.run(), name="follow metadata")
        try:
            while not silence.resigned.is_set() and not self._may_lead(follower):
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._settings.standby_look_s):
                        await silence.resigned.wait()
                if following.done():
                    following.result()
        finally:
            await cancelled((following,))
        self._restarted = False
        image = follower.position.image
        return follower.position, silence.of(list(image.nodes))

    def _may_lead(self, follower: MetadataFollower) -> bool:
        image = follower.position.image
        if self._restarted and image.position == 0:
            return True  # a new cluster
        if self._restarted and image.controller_id == self._node_id:
            return True  # the leader was this node's process before this one
        return follower.silent_s >= self._settings.takeover_s

    async def _lead(self, base: Position, silent_s: Mapping[NodeId, float]) -> Position:
        """Until it is deposed, at once where the claim does not hold. Returns from where to follow."""
        deposed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        leader = ControllerLeader(
            self._store,
            self._node_id,
            rng=self._rng,
            feed=self._feed,
            on_deposed=deposed.set_result,
            settings=self._settings,
            host=self._host,
            port=self._port,
        )
        guard = ClockGuard(self._store, self._clock, self._rng, node_id=self._node_id)
        controller = LeadingController(
            leader, node_id=self._node_id, store=self._store, guard=guard, rng=self._rng, silent_s=silent_s
        )
        try:
            await leader.start(base, attempts_max=1, beside=controller.beside)
        except Fenced as error:
            metrics.TAKEOVERS.labels("lost").inc()
            _log.info("controller follows: it did not become the leader", reason=str(error))
            return base
        metrics.TAKEOVERS.labels("won").inc()
        self.controller.leads(controller)
        try:
            reason = await deposed
        finally:
            await controller.stop()
            self.controller.leads(None)
        _log.warning("controller follows again", reason=reason)
        return leader.position

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled():
            return
        error = task.exception()
        self._on_ended(f"{type(error).__name__}: {error}")
        if not isinstance(error, BmqError):
            asyncio.get_running_loop().call_exception_handler(
                {"message": "the controller failed", "exception": error, "task": task}
            )
