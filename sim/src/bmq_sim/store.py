"""An object store that fails as real ones do: strongly consistent like S3, and with replies that are late, lost or
wrong about the outcome.

What is applied is applied by the store, not by the caller: a create that was sent may land after its caller gave up,
was paused or was killed. A listing is a sequence of pages of three keys, each one true when it was made and old when it
arrives; or the names first and their sizes later, as a shared folder's or MinIO's (`SimStore.listing`).
"""

import asyncio
import contextlib
import contextvars
import enum
import hashlib
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from random import Random
from typing import Final, Protocol, TypeVar

from typing_extensions import Buffer

from bmq.errors import Conflict, NotApplied, ObjectMissing, StoreUnavailable, UnknownOutcome
from bmq.ports import ObjectMeta
from bmq_sim.clock import true_now_ms
from bmq_sim.process import CURRENT_PROCESS, ProcessState, SimProcess

T = TypeVar("T")


class Fault(enum.StrEnum):
    """What the store did to a request."""

    SLOW = "slow"
    REFUSED = "503"
    THROTTLED = "throttled"
    UNKNOWN = "unknown outcome"
    UNREACHABLE = "unreachable"


class ListingKind(enum.StrEnum):
    """What a listing shows of what changes meanwhile."""

    PAGES = "pages"
    """As a bucket's: each page is of one moment, and the next one of a later one."""
    FOLDERS = "folders"
    """As a shared folder's: the names of a folder at one moment, and sizes later; where one is gone by then, the names
    above it again."""
    NAMES = "names"
    """As MinIO's: all names at one moment, and sizes later; what is gone by then is left out."""


NAMES_MAX: Final = 1_000
"""How many names come at once where names come first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFaults:
    """The fault plan: seconds and probabilities per request. All zero: a perfect store that answers at once."""

    latency_s_min: float = 0.0
    latency_s_max: float = 0.0
    slow_probability: float = 0.0
    slow_s_max: float = 0.0
    slow_creates_of: str = ""
    """Creates of keys that contain it are always slow."""
    not_applied_probability: float = 0.0
    unknown_applied_probability: float = 0.0
    unknown_not_applied_probability: float = 0.0
    unknown_late_probability: float = 0.0
    """The caller is told `unknown`, and the create lands up to `late_s_max` later."""
    late_s_max: float = 30.0
    unavailable_probability: float = 0.0
    """How likely get, list, head and delete fail; a delete may have been applied, or be applied late."""
    unavailable_prefix: str = ""
    """Nothing below it is read: stores throttle by prefix, too."""
    refused_prefix: str = ""
    """Nothing below it is created or deleted."""
    timeout_s: float = 5.0
    """How long a request hangs that gets no answer."""
    refusal: Fault = Fault.REFUSED
    """What a request is told to have met that was not taken."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """What is in the store under a key."""

    data: bytes
    modified_ms: int


class Request:
    """One request on its way. `fault`: what the plan did to it, where it did anything."""

    __slots__ = ("data", "fault", "key", "node", "process", "verb")

    def __init__(self, node: str, verb: str, key: str, data: bytes = b"") -> None:
        self.node = node
        self.verb = verb
        self.key = key
        self.data = data
        self.process = CURRENT_PROCESS.get()
        self.fault: Fault | None = None


class Watcher(Protocol):
    """Sees every request begin and end. One whose sender is killed never ends."""

    def began(self, request: Request) -> None: ...

    def ended(self, request: Request) -> None: ...


class SimStore:
    """The store itself. Nodes reach it through `for_node`; the methods here act on it directly and never fail."""

    def __init__(
        self,
        *,
        rng: Random | None = None,
        faults: StoreFaults | None = None,
        page_keys: int = 3,
        clock_offset_ms: int = 0,
    ) -> None:
        self.faults = faults or StoreFaults()
        self.rng = rng or Random(0)
        self.page_keys = page_keys
        self.listing = ListingKind.PAGES
        self.clock_offset_ms = clock_offset_ms
        self.objects: dict[str, StoredObject] = {}
        self.requests: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.trace: Callable[[str], None] | None = None
        self.injected: Counter[str] = Counter()
        """Requests with which something went wrong, by kind."""
        self.deleted: set[str] = set()
        """Every key that was ever deleted."""
        self.created_again: list[str] = []
        """Keys that were created after they had been deleted: late creates that fell into the deleted past."""
        self.lost: set[str] = set()
        """Keys of which the scenario says that a disaster took them: nobody is to blame that they are not there."""
        self.watcher: Watcher | None = None
        self.keep_all = False
        """Whether every object that was ever created is kept in `ever`."""
        self.ever: list[tuple[str, bytes]] = []
        self._keys: list[str] = []
        self._down_until_s = 0.0
        self._cut_off_until_s: dict[str, float] = {}
        self._faults_of: dict[str, tuple[StoreFaults, float]] = {}
        self._digest = hashlib.blake2b(digest_size=16)

    def for_node(self, name: str) -> "NodeStore":
        """The store as node `name` sees it: an ObjectStore."""
        return NodeStore(self, name)

    def outage(self, duration_s: float) -> None:
        """Down for everyone for `duration_s` from now."""
        self._down_until_s = asyncio.get_running_loop().time() + duration_s

    def cut_off(self, node: str, duration_s: float) -> None:
        """Out of reach for one node for `duration_s` from now."""
        self._cut_off_until_s[node] = asyncio.get_running_loop().time() + duration_s

    def trouble(self, node: str, faults: StoreFaults, duration_s: float) -> None:
        """A plan for one node alone, for `duration_s` from now."""
        self._faults_of[node] = (faults, asyncio.get_running_loop().time() + duration_s)

    def faults_of(self, node: str) -> StoreFaults:
        """The plan that holds for a node now."""
        own = self._faults_of.get(node)
        if own is None:
            return self.faults
        if asyncio.get_running_loop().time() >= own[1]:
            del self._faults_of[node]
            return self.faults
        return own[0]

    def heal(self) -> None:
        """Up, in reach, and without faults from now on; what is on its way stays on its way."""
        self._down_until_s = 0.0
        self._cut_off_until_s.clear()
        self._faults_of.clear()
        kept = self.faults
        self.faults = StoreFaults(latency_s_min=kept.latency_s_min, latency_s_max=kept.latency_s_max)

    def reaches(self, node: str) -> bool:
        """Whether a request of `node` gets through now."""
        now = asyncio.get_running_loop().time()
        return now >= self._down_until_s and now >= self._cut_off_until_s.get(node, 0.0)

    @contextlib.contextmanager
    def watched(self, request: Request) -> Iterator[Request]:
        """Counts the request, and lets the watcher see it."""
        self.requests[request.verb] += 1
        watcher = self.watcher
        if watcher is not None:
            watcher.began(request)
        try:
            yield request
        finally:
            if request.fault is not None:
                self.injected[request.fault] += 1
            if watcher is not None:
                watcher.ended(request)

    def keys(self, prefix: str = "") -> list[str]:
        """Sorted."""
        return self.page(prefix, after="", count=len(self._keys))

    def page(self, prefix: str, *, after: str, count: int) -> list[str]:
        """The next `count` keys of a prefix, above `after`."""
        start = bisect_right(self._keys, after) if after >= prefix else bisect_left(self._keys, prefix)
        found: list[str] = []
        while start < len(self._keys) and len(found) < count and self._keys[start].startswith(prefix):
            found.append(self._keys[start])
            start += 1
        return found

    def meta(self, key: str) -> ObjectMeta:
        """Raises KeyError."""
        stored = self.objects[key]
        return ObjectMeta(key=key, size_bytes=len(stored.data), modified_ms=stored.modified_ms)

    def apply_create(self, node: str, key: str, data: bytes) -> bool:
        """False where the key exists."""
        if key in self.objects:
            self.record(f"{node} conflict {key}")
            return False
        if key in self.deleted:
            self.created_again.append(key)
        self.objects[key] = StoredObject(data, true_now_ms() + self.clock_offset_ms)
        if self.keep_all:
            self.ever.append((key, data))
        insort(self._keys, key)
        self.bytes["create"] += len(data)
        self.record(f"{node} create {key} {len(data)}")
        return True

    def apply_delete(self, node: str, key: str) -> None:
        """A missing key is success."""
        if self.objects.pop(key, None) is not None:
            self._keys.remove(key)
            self.deleted.add(key)
            self.record(f"{node} delete {key}")

    def record(self, line: str) -> None:
        """One line of the run's trace; part of its digest."""
        stamped = f"{asyncio.get_running_loop().time():.6f} {line}"
        self._digest.update(stamped.encode())
        if self.trace is not None:
            self.trace(stamped)

    def digest(self) -> str:
        """A hash of everything that changed the store, in order, with times."""
        return self._digest.hexdigest()


class NodeStore:
    """bmq.ports.ObjectStore of one node."""

    def __init__(self, store: SimStore, node: str) -> None:
        self._store = store
        self._node = node
        self._kernel = contextvars.Context()

    @property
    def page_keys(self) -> int:
        """How many keys a full page of a listing has."""
        return self._store.page_keys

    async def create(self, key: str, parts: Sequence[Buffer]) -> None:
        """As the port says, with the plan's faults."""
        data = b"".join(parts)
        with self._store.watched(Request(self._node, "create", key, data)) as request:
            await self._create(request, data)

    async def _create(self, request: Request, data: bytes) -> None:
        store, faults, key = self._store, self._store.faults_of(self._node), request.key
        if not store.reaches(self._node):
            request.fault = Fault.UNREACHABLE
            await self._fail_unreached(request)
        dice = store.rng.random()
        latency_s = self._latency_s(request)
        if dice < (mark := faults.not_applied_probability) or _is_below(key, faults.refused_prefix):
            request.fault = faults.refusal
            await asyncio.sleep(latency_s)
            raise NotApplied(f"create {key}: refused by the simulated store")
        if dice < (mark := mark + faults.unknown_not_applied_probability):
            request.fault = Fault.UNKNOWN
            await asyncio.sleep(self._timeout_s())
            raise UnknownOutcome(f"create {key}: no answer")
        if dice < (mark := mark + faults.unknown_applied_probability):
            request.fault = Fault.UNKNOWN
            self._send_create(key, data, after_s=latency_s)
            await asyncio.sleep(latency_s + store.rng.random() * faults.timeout_s)
            raise UnknownOutcome(f"create {key}: no answer")
        if dice < mark + faults.unknown_late_probability:
            request.fault = Fault.UNKNOWN
            timeout_s = self._timeout_s()
            self._send_create(key, data, after_s=timeout_s + store.rng.random() * faults.late_s_max)
            await asyncio.sleep(timeout_s)
            raise UnknownOutcome(f"create {key}: no answer")
        if not await self._send_create(key, data, after_s=latency_s):
            raise Conflict(f"create {key}: exists")

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        """As the port says."""
        stored = await self._read("get", key, lambda: self._store.objects.get(key))
        if stored is None:
            raise ObjectMissing(f"get {key}: no such object")
        data = stored.data[start:] if length is None else stored.data[start : start + length]
        self._store.bytes["get"] += len(data)
        return data

    def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
        """As the port says."""
        match self._store.listing:
            case ListingKind.PAGES:
                return Listing(self, prefix, after)
            case ListingKind.FOLDERS:
                folder, slash, name_prefix = prefix.rpartition("/")
                return self._list_folders(folder + slash, name_prefix, after)
            case ListingKind.NAMES:
                return self._list_names(prefix, after)

    async def _list_folders(self, folder: str, name_prefix: str, after: str) -> AsyncIterator[ObjectMeta]:
        """As bmq.runtime.folder_files walks: what is gone by the time that its size is asked for sends it back to the
        names.
        """
        names = await self._names(folder, name_prefix, after)
        while names:
            if names[0].endswith("/"):
                async for meta in self._list_folders(names[0], "", after):
                    yield meta
                names = names[1:]
                continue
            some = list(takewhile(lambda key: not key.endswith("/"), names[: self._store.page_keys]))
            found = await self._sizes(folder, some)
            for key, size in zip(some, found, strict=True):
                names = names[1:]
                if size is None:
                    names = await self._names(folder, name_prefix, key)
                    break
                yield size

    async def _names(self, folder: str, name_prefix: str, after: str) -> Sequence[str]:
        """What is in a folder at one moment; those of folders end with the slash."""

        def read() -> Sequence[str]:
            keys = self._store.page(folder + name_prefix, after=after, count=len(self._store.objects))
            return list(dict.fromkeys(folder + "".join(key.removeprefix(folder).partition("/")[:2]) for key in keys))

        return await self._read("list", folder, read)

    async def _list_names(self, prefix: str, after: str) -> AsyncIterator[ObjectMeta]:
        """Names, then their sizes; then more names, where there were as many as come at once."""
        while True:
            names = await self._read("list", prefix, partial(self._store.page, prefix, after=after, count=NAMES_MAX))
            for start in range(0, len(names), self._store.page_keys):
                for meta in await self._sizes(prefix, names[start : start + self._store.page_keys]):
                    if meta is not None:
                        yield meta
            if len(names) < NAMES_MAX:
                return
            after = names[-1]

    async def _sizes(self, prefix: str, names: Sequence[str]) -> Sequence[ObjectMeta | None]:
        """None for what is gone."""
        store = self._store
        return await self._read(
            "list", prefix, lambda: [store.meta(key) if key in store.objects else None for key in names]
        )

    async def delete(self, key: str) -> None:
        """As the port says. One that failed may have been applied, and may still be applied later."""
        with self._store.watched(Request(self._node, "delete", key)) as request:
            await self._delete(request)

    async def _delete(self, request: Request) -> None:
        store, faults, key = self._store, self._store.faults_of(self._node), request.key
        latency_s = self._latency_s(request)
        reached = store.reaches(self._node)
        refused = _is_below(key, faults.refused_prefix)
        fails = not reached or refused or store.rng.random() < faults.unavailable_probability
        if not fails:
            applied: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._send_delete(key, after_s=latency_s, applied=applied)
            await applied
            return
        request.fault = faults.refusal if reached else Fault.UNREACHABLE
        if reached and not refused and store.rng.random() < 0.5:
            late_s = store.rng.random() * faults.late_s_max if store.rng.random() < 0.5 else 0.0
            self._send_delete(key, after_s=latency_s + late_s, applied=None)
        await asyncio.sleep(self._timeout_s())
        raise StoreUnavailable(f"delete {key}: no answer")

    async def head(self, key: str) -> ObjectMeta:
        """As the port says."""
        meta = await self._read("head", key, lambda: self._store.meta(key) if key in self._store.objects else None)
        if meta is None:
            raise ObjectMissing(f"head {key}: no such object")
        return meta

    async def page(self, prefix: str, after: str) -> "Sequence[ObjectMeta]":
        """One page of a listing."""
        store = self._store
        return await self._read(
            "list", prefix, lambda: [store.meta(key) for key in store.page(prefix, after=after, count=store.page_keys)]
        )

    async def _read(self, verb: str, key: str, read: Callable[[], T]) -> T:
        """What was true at some moment between the request and its answer."""
        store = self._store
        with store.watched(Request(self._node, verb, key)) as request:
            faults = store.faults_of(self._node)
            reached = store.reaches(self._node)
            throttled = _is_below(key, faults.unavailable_prefix)
            if not reached or throttled or store.rng.random() < faults.unavailable_probability:
                request.fault = faults.refusal if reached else Fault.UNREACHABLE
                await asyncio.sleep(self._timeout_s())
                raise StoreUnavailable(f"{verb}: the simulated store does not answer")
            latency_s = self._latency_s(request)
            if store.rng.random() < 0.5:
                found = read()
                await asyncio.sleep(latency_s)
                return found
            await asyncio.sleep(latency_s)
            return read()

    def _send_create(self, key: str, data: bytes, *, after_s: float) -> "asyncio.Future[bool]":
        """The future says whether it was applied; it is applied (or lost) also when nobody waits any more."""
        loop = asyncio.get_running_loop()
        process = CURRENT_PROCESS.get()
        applied: asyncio.Future[bool] = loop.create_future()
        loop.call_later(after_s, self._land_create, key, data, process, applied, context=self._kernel)
        return applied

    def _land_create(self, key: str, data: bytes, process: SimProcess | None, applied: "asyncio.Future[bool]") -> None:
        store = self._store
        if process is not None and process.state is ProcessState.DEAD and not applied.done():
            # Its sender died with the request on the way: it may have left in time, never, or crawl through some
            # proxy's queue.
            applied.cancel()
            dice = store.rng.random()
            if dice < 1 / 3:
                return
            if dice < 2 / 3:
                delay_s = store.rng.random() * store.faults.late_s_max
                asyncio.get_running_loop().call_later(
                    delay_s, self._land_create, key, data, process, applied, context=self._kernel
                )
                return
        done = store.apply_create(self._node, key, data)
        if not applied.done():
            applied.set_result(done)

    def _send_delete(self, key: str, *, after_s: float, applied: "asyncio.Future[None] | None") -> None:
        def land() -> None:
            self._store.apply_delete(self._node, key)
            if applied is not None and not applied.done():
                applied.set_result(None)

        asyncio.get_running_loop().call_later(after_s, land, context=self._kernel)

    async def _fail_unreached(self, request: Request) -> None:
        if self._store.rng.random() < 0.5:
            await asyncio.sleep(self._latency_s(request))
            raise NotApplied(f"create {request.key}: connection refused")
        await asyncio.sleep(self._timeout_s())
        raise UnknownOutcome(f"create {request.key}: no answer")

    def _latency_s(self, request: Request) -> float:
        rng, faults = self._store.rng, self._store.faults_of(self._node)
        latency_s = rng.uniform(faults.latency_s_min, faults.latency_s_max)
        is_slow = bool(faults.slow_creates_of) and request.verb == "create" and faults.slow_creates_of in request.key
        if is_slow or (faults.slow_probability and rng.random() < faults.slow_probability):
            request.fault = Fault.SLOW
            latency_s += rng.random() * faults.slow_s_max
        return latency_s

    def _timeout_s(self) -> float:
        return self._store.rng.uniform(0.2, 1.0) * self._store.faults_of(self._node).timeout_s


def _is_below(key: str, prefix: str) -> bool:
    return bool(prefix) and key.startswith(prefix)


class Listing:
    """Objects of a prefix in order, fetched page by page."""

    def __init__(self, store: NodeStore, prefix: str, after: str) -> None:
        self._store = store
        self._prefix = prefix
        self._after = after
        self._page: list[ObjectMeta] = []
        self._ended = False

    def __aiter__(self) -> "Listing":
        return self

    async def __anext__(self) -> ObjectMeta:
        if not self._page and not self._ended:
            page = await self._store.page(self._prefix, self._after)
            self._page = list(reversed(page))
            if page:
                self._after = page[-1].key
            self._ended = len(page) < self._store.page_keys
        if not self._page:
            raise StopAsyncIteration
        return self._page.pop()
