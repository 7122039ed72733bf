"""The leading controller: claims the metadata log, turns operations into entries, publishes each image once its entry
is durable.

One writer task makes one entry at a time out of everything that waits (group commit). The first conflict with another
leader ends it for good: the log's rules, not a lease, decide who leads.
"""

import asyncio
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

import structlog

from bmq.errors import (
    BmqError,
    ControllerUnavailable,
    Fenced,
    FormatError,
    NotReady,
    ObjectMissing,
    StoreError,
    StoreUnavailable,
    UnknownOutcome,
)
from bmq.metadata.codec import LOG_PREFIX, encode_records
from bmq.metadata.feed import MetadataFeed
from bmq.metadata.fold import apply
from bmq.metadata.image import Image
from bmq.metadata.invariants import check_step
from bmq.metadata.journal import MetadataJournal, Position
from bmq.metadata.records import AnyRecord, ClusterCreated, LeaderElected
from bmq.ports import ObjectStore, Rng
from bmq.storage.durable import Backoff, cancelled
from bmq.storage.flatlog import Entry, Overtaken
from bmq.storage.numbered import numbered_key
from bmq.values import NO_NODE, NodeId
from bmq_controller import metrics
from bmq_controller.bare_store import object_of_a_cluster, without_metadata
from bmq_controller.collector import Collector
from bmq_controller.machine.decision import Decision
from bmq_controller.machine.nodes import collected
from bmq_controller.operations import Draft, Operation, OperationQueue, draft_alone, draft_neutral
from bmq_controller.recent import RecentEntries
from bmq_controller.settings import ControllerSettings
from bmq_controller.strays import Strays

T = TypeVar("T")
Beside = tuple[str, Callable[[], Awaitable[None]]]
_log = structlog.get_logger(__name__)


class ControllerLeader:
    """Leads from `start` until `stop` or until it is deposed. Operations are in `bmq_controller.controller`."""

    def __init__(
        self,
        store: ObjectStore,
        node_id: NodeId,
        *,
        rng: Rng,
        feed: MetadataFeed,
        on_deposed: Callable[[str], None],
        settings: ControllerSettings | None = None,
        host: str = "",
        port: int = 0,
    ) -> None:
        """`on_deposed(reason)` is called once, where it can lead no more; never after `stop`. `host` and `port`: where
        other nodes reach it.
        """
        self.settings = settings if settings is not None else ControllerSettings()
        self._store = store
        self._node_id = node_id
        self._host = host
        self._port = port
        self._rng = rng
        self._feed = feed
        self._on_deposed = on_deposed
        self._journal = MetadataJournal(store, rng=rng)
        self._queue = OperationQueue(waiting_max=self.settings.operations_waiting_max)
        self.recent = RecentEntries()
        """What followers may be given."""
        self._told: list[Callable[[Sequence[AnyRecord]], None]] = []
        self._image = Image()
        self._entry: Entry | None = None
        self._ended: str | None = "it has not started"
        self._stopping = False
        self._committing: Draft | None = None
        self._deciding: Operation | None = None
        """What is decided about in a thread."""
        self._tasks: list[asyncio.Task[None]] = []
        self.led_at_s = float("-inf")
        """A moment of the loop at which this one certainly led."""
        self._idle = asyncio.Event()
        self._snapshot_due = asyncio.Event()
        self._entries_since_snapshot = 0
        self._bytes_since_snapshot = 0

    def tell(self, committed: Callable[[Sequence[AnyRecord]], None]) -> None:
        """Calls it with the records of each entry once that is committed and published."""
        self._told.append(committed)

    @property
    def image(self) -> Image:
        """The newest committed one."""
        return self._image

    @property
    def position(self) -> Position:
        """The newest committed image and its entry."""
        return Position(image=self._image, entry=self._entry, entries=self._entries_since_snapshot)

    async def start(
        self, base: Position | None = None, *, attempts_max: int | None = None, beside: Sequence[Beside] = ()
    ) -> None:
        """Reads the metadata (unless `base` is given) and claims leadership. Waits out a store that is down; the caller
        sets the limit of time.

        `beside` is run as long as this leads: pairs of a name and what to run; its failure deposes the leader.

        Raises FormatError, StoreUnusable where there are a cluster's objects without its metadata, Fenced where others
        claim it, in all of the attempts.
        """
        await self._claim(
            base, attempts_max=attempts_max if attempts_max is not None else self.settings.start_attempts_max
        )
        self._ended = None
        metrics.LEADING.set(1)
        metrics.EPOCH.set(self._image.controller_epoch)
        collector = Collector(
            self._store,
            rng=self._rng,
            image=lambda: self._image,
            collected=lambda streams, topics: self.operate(
                "collected", lambda image: collected(image, streams=streams, topics=topics)
            ),
            delay_s=self.settings.collect_delay_s,
            interval_s=self.settings.collect_interval_s,
        )
        strays = Strays(
            self._store,
            image=lambda: self._image,
            current=self._current_image,
            interval_s=self.settings.stray_interval_s,
        )
        own = (("write", self._write), ("snapshot", self._snapshot), ("collect", collector.run), ("strays", strays.run))
        for name, work in (*own, *beside):
            self._tasks.append(asyncio.get_running_loop().create_task(self._guarded(work), name=f"controller {name}"))

    async def stop(self, *, farewell: Decision[None] | None = None) -> None:
        """Commits what is under way and after it the `farewell`, for a limited time, and ends. Another controller finds
        everything in the store.
        """
        if self._ended is None:
            self._ended = "it is stopping"
            self._stopping = True
            try:
                async with asyncio.timeout(self.settings.stop_timeout_s):
                    if farewell is not None:
                        await self._submit("farewell", lambda image: farewell)
                    await self._idle.wait()
            except TimeoutError:
                _log.warning("controller stops before everything is committed", waiting=len(self._queue))
            except ControllerUnavailable as error:
                _log.info("controller stops without a farewell", reason=str(error))
        self._end("it has stopped")
        await cancelled(self._tasks)
        self._tasks.clear()

    def check_leading(self) -> None:
        """Raises ControllerUnavailable where this one leads no more, as far as it knows."""
        if self._ended is not None:
            raise ControllerUnavailable(f"This controller does not lead: {self._ended}")

    async def operate(
        self,
        name: str,
        decide: Callable[[Image], Decision[T]],
        *,
        first: bool = False,
        work: int = 0,
        gives_away: NodeId | None = None,
        neutral: bool = False,
    ) -> T:
        """The result of a decision once its records are durable and published; `first`: before all that are not.
        `work`: how much it is to decide, beyond what every decision is. `gives_away`: whose partitions it gives to
        others; where those are many, `decide` is called in a thread, and looks at nothing but the image. `neutral`: its
        records change nothing.

        Raises what the decision raises, and ControllerUnavailable: not applied where the operation was still waiting,
        unknown otherwise.
        """
        self.check_leading()
        beside = gives_away is not None and self._has_many(gives_away)
        future = self._submit(name, decide, first=first, work=work, beside=beside, neutral=neutral)
        try:
            async with asyncio.timeout(self.settings.operation_timeout_s):
                return await future
        except TimeoutError:
            raise ControllerUnavailable(
                f"{name} was not durable within {self.settings.operation_timeout_s:g} s: the object store is slow "
                "or down; look, and try again"
            ) from None
        finally:
            del future  # a refusal has this frame, and so would live until the garbage is collected

    def _has_many(self, node_id: NodeId) -> bool:
        """Partitions, with those that nobody owns and that go to others with them."""
        counts = self._image.owned_counts
        return counts.get(node_id, 0) + counts.get(NO_NODE, 0) > self.settings.decided_beside_partitions

    def _submit(
        self,
        name: str,
        decide: Callable[[Image], Decision[T]],
        *,
        first: bool = False,
        work: int = 0,
        beside: bool = False,
        neutral: bool = False,
    ) -> "asyncio.Future[T]":
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.put(Operation(name, decide, future, work, beside, neutral), first=first)
        self._idle.clear()
        return future

    async def _claim(self, base: Position | None, *, attempts_max: int) -> None:
        backoff = Backoff(self._rng)
        if base is None:
            base = await self._journal.load()
        for attempt in range(1, attempts_max + 1):
            image = base.image
            records: list[AnyRecord] = []
            if not image.cluster_id:
                if (key := await object_of_a_cluster(self._store, rng=self._rng)) is not None:
                    base = await self._journal.load()  # whoever made it wrote metadata before
                    if not base.image.cluster_id:
                        raise without_metadata(key)
                    continue
                records.append(ClusterCreated(cluster_id=self.settings.cluster_id or self._new_cluster_id()))
            epoch = image.controller_epoch + 1
            records.append(
                LeaderElected(controller_epoch=epoch, node_id=self._node_id, host=self._host, port=self._port)
            )
            then = apply(image, image.position + 1, records)
            check_step(image, then)
            try:
                entry = await self._journal.log.claim(base.entry, epoch=epoch, payload=encode_records(records))
            except Overtaken as overtaken:
                if attempt == attempts_max:
                    break
                # The present leader is at work. A conflict shows its entry: building on that at once, without a
                # listing, wins where it pauses.
                follows = await self._journal.follow(base, overtaken.entry)
                base = follows if follows is not None else await self._journal.load()
                continue
            except (Fenced, UnknownOutcome) as error:
                _log.info("controller claim did not hold", attempt=attempt, error=str(error))
                if attempt == attempts_max:
                    break
                await backoff.wait()
                base = await self._journal.load()
                continue
            _log.info(
                "controller leads",
                cluster_id=then.cluster_id,
                controller_epoch=epoch,
                position=then.position,
                topics=len(then.topics),
            )
            self._entries_since_snapshot = base.entries
            self._take_up(then, entry)
            return
        raise Fenced(f"{attempts_max} claims of the metadata log failed: others write it")

    def _new_cluster_id(self) -> str:
        """22 characters of base64, as Kafka's are; not one that a tool would take for an option."""
        while True:
            text = urlsafe_b64encode(self._rng.uuid().bytes).decode().rstrip("=")
            if not text.startswith("-"):
                return text

    async def _write(self) -> None:
        """The one writer."""
        while True:
            if not self._queue:
                self._idle.set()
                if not await self._queue.arrival(self.settings.leading_check_s):
                    await self._check_leading()
                    continue
            await self._commit_and_deliver(await self._draft())

    async def _draft(self) -> Draft:
        """The next entry. Nobody changes the image meanwhile, but for its position: what standbys watch goes on."""
        operation = self._queue.take_beside()
        if operation is None:
            return self._queue.draft(
                self._image, records_max=self.settings.records_per_entry, work_max=self.settings.work_per_entry
            )
        self._deciding = operation
        deciding = asyncio.get_running_loop().run_in_executor(None, partial(draft_alone, self._image, operation))
        while not (await asyncio.wait((deciding,), timeout=self.settings.sign_of_life_s / 8))[0]:
            if (neutral := self._queue.take_neutral()) is not None:
                await self._commit_and_deliver(draft_neutral(self._image, neutral))
        self._deciding = None
        return deciding.result().after(self._image)

    async def _commit_and_deliver(self, draft: Draft) -> None:
        self._committing = draft
        if draft.records:
            await self._commit(draft)
        else:
            # A refusal, too, must not come from one who was replaced.
            await self._check_leading()
        self._committing = None
        draft.deliver()

    async def _commit(self, draft: Draft) -> None:
        """Makes the entry durable, however long the store is down. Raises Fenced."""
        assert self._entry is not None
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        payload = encode_records(draft.records)
        backoff = Backoff(self._rng)
        while True:
            try:
                entry = await self._journal.log.append(self._entry, epoch=self._entry.epoch, payload=payload)
                break
            except Overtaken as overtaken:
                if overtaken.entry.epoch != self._entry.epoch or overtaken.entry.payload != payload:
                    raise Fenced(f"another controller wrote metadata entry {overtaken.entry.number}") from overtaken
                entry = overtaken.entry
                break
            except UnknownOutcome:
                await backoff.wait()
        metrics.ENTRIES.inc()
        metrics.RECORDS.inc(len(draft.records))
        metrics.ENTRY_BYTES.observe(len(payload))
        metrics.COMMIT_SECONDS.observe(loop.time() - began_s)
        self.led_at_s = began_s
        self._take_up(draft.image, entry)
        for committed in self._told:
            committed(draft.records)

    def _take_up(self, image: Image, entry: Entry) -> None:
        assert image.position == entry.number, f"entry {entry.number} makes the image of {image.position}"
        self._image = image
        self._entry = entry
        self._feed.publish(image)
        self.recent.add(entry)
        self._entries_since_snapshot += 1
        self._bytes_since_snapshot += len(entry.payload)
        if (
            self._entries_since_snapshot >= self.settings.snapshot_entries
            or self._bytes_since_snapshot >= self.settings.snapshot_bytes
        ):
            self._snapshot_due.set()
        unowned = image.owned_counts.get(NO_NODE, 0)
        metrics.POSITION.set(image.position)
        metrics.TOPICS.set(len(image.topics))
        metrics.LANES.set(len(image.lanes))
        metrics.NODES.set(len(image.nodes))
        metrics.MOVING.set(len(image.moving))
        metrics.PARTITIONS.labels("no").set(unowned)
        metrics.PARTITIONS.labels("yes").set(sum(image.owned_counts.values()) - unowned)

    async def _check_leading(self) -> None:
        """Whoever appends nothing would never learn of its successor otherwise. Raises Fenced; a store that is down
        says nothing.
        """
        assert self._entry is not None
        key = numbered_key(LOG_PREFIX, self._entry.number + 1)
        began_s = asyncio.get_running_loop().time()
        try:
            await self._store.head(key)
        except ObjectMissing:
            self.led_at_s = began_s
            return
        except StoreUnavailable:
            return
        raise Fenced(f"another controller wrote metadata entry {self._entry.number + 1}")

    async def _current_image(self) -> Image:
        """The image, which nobody had added to when this was called. Raises StoreUnavailable; NotReady where that is
        not so.

        Nor while an entry of its own is under way: that may have landed without an answer, and be gone again under a
        successor's snapshots.
        """
        image = self._image
        if self._committing is not None:
            raise NotReady(f"metadata entry {image.position + 1} is being written")
        try:
            await self._store.head(numbered_key(LOG_PREFIX, image.position + 1))
        except ObjectMissing:
            return image
        raise NotReady(f"metadata entry {image.position + 1} was written meanwhile")

    async def _snapshot(self) -> None:
        """Takes a snapshot when one is due, beside the writer, and deletes what it makes superfluous."""
        while True:
            await self._snapshot_due.wait()
            self._snapshot_due.clear()
            self._entries_since_snapshot = self._bytes_since_snapshot = 0
            try:
                size_bytes = await self._journal.save_snapshot(Position(image=self._image, entry=self._entry))
                metrics.SNAPSHOTS.inc()
                metrics.SNAPSHOT_BYTES.set(size_bytes)
                await self._journal.prune()
            except (StoreError, FormatError) as error:
                # The log is whole without a snapshot: it is only longer.
                _log.warning(
                    "metadata snapshot was not taken or nothing deleted behind it, the next one will be",
                    error=str(error),
                )

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        """A leader leads with all its tasks or not at all."""
        try:
            await work()
        except Fenced as fenced:
            self._depose(f"another bmq has taken over this store: {fenced}")
        except BmqError as error:
            self._depose(f"this controller cannot go on: {type(error).__name__}: {error}")
        except Exception as error:
            self._depose(f"this controller broke down, a bug: {type(error).__name__}: {error}")
            raise

    def _depose(self, reason: str) -> None:
        if self._ended is not None and not self._stopping:
            return
        metrics.DEPOSED.inc()
        _log.error("controller leads no more", reason=reason)
        self._end(reason)
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        if not self._stopping:
            self._on_deposed(reason)

    def _end(self, reason: str) -> None:
        self._ended = reason
        self._idle.set()
        metrics.LEADING.set(0)
        error = ControllerUnavailable(f"This controller does not lead: {reason}")
        self._queue.fail(error)
        self.recent.end(error)
        if self._committing is not None:
            self._committing.fail(error)
        if self._deciding is not None and not self._deciding.future.done():
            self._deciding.future.set_exception(error)
