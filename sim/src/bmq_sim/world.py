"""One simulated run: a seed becomes a store, a network, processes and their accidents, and a verdict that repeats
exactly.
"""

import contextlib
import gc
import hashlib
import logging
import traceback
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import structlog

from bmq_sim.history import History
from bmq_sim.limits import small
from bmq_sim.loop import START_S, VirtualLoop, run
from bmq_sim.network import Network, NetworkFaults
from bmq_sim.process import SimProcess
from bmq_sim.store import ListingKind, SimStore, StoreFaults
from bmq_sim.work import Work

STEPS_MAX = 2_000_000
VIRTUAL_S_MAX = 4_000.0


class World:
    """What a scenario works with. Everything random comes from `rng(name)`: one stream of chance for each purpose."""

    def __init__(
        self, seed: int, *, trace: Callable[[str], None] | None = None, listing: ListingKind | None = None
    ) -> None:
        self.seed = seed
        self._listing = listing
        self.network = Network(rng=self.rng("network"))
        self.loop = VirtualLoop(network=self.network, steps_max=STEPS_MAX, virtual_s_max=VIRTUAL_S_MAX)
        threads = self.rng("threads")
        if slowest_s := threads.choice((0.0, 0.01, 0.3)):
            self.loop.executor_delay_s = lambda: slowest_s * threads.random() ** 4
        self.store = SimStore(rng=self.rng("store"))
        self.store.listing = listing or ListingKind.PAGES
        self.history = History()
        self.work = Work(seeds=1)
        self._trace = trace
        self.store.trace = self._line if trace is not None else None

    def rng(self, name: str) -> Random:
        """A stream of chance of its own."""
        return Random(f"{self.seed}/{name}")

    def list_by_seed(self) -> None:
        """The store lists by pages or as a folder does, unless all seeds are to have the same.

        Not names first: docs/stores.md says what that leaves.
        """
        if self._listing is None:
            self.store.listing = self.rng("listing").choice((ListingKind.PAGES, ListingKind.FOLDERS))

    def note(self, line: str) -> None:
        """One line of the trace; part of the digest."""
        self.store.record(line)

    def kill_within(self, process: SimProcess, *, steps: int, rng: Random) -> None:
        """Kills the process before one of the next `steps` steps."""

        def kill() -> None:
            self.note(f"kill {process.name}")
            self.loop.kill(process)

        self.loop.at_step(self.loop.steps + rng.randrange(1, steps + 1), kill)

    def digest(self) -> str:
        """A hash of the store's changes, of every event of the history, and of how many steps the run took."""
        digest = hashlib.blake2b(self.store.digest().encode(), digest_size=16)
        history = self.history
        for part in (
            history.attempts,
            history.seen,
            history.ends,
            history.commits,
            history.commits_seen,
            history.refused,
            history.starts,
            history.told,
        ):
            digest.update(repr(part).encode())
        digest.update(f"{self.loop.steps} {self.loop.time()}".encode())
        return digest.hexdigest()

    def _line(self, line: str) -> None:
        assert self._trace is not None
        self._trace(line)


Scenario = Callable[[World], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a seed went. `error` None: every invariant held."""

    seed: int
    digest: str
    error: str | None
    steps: int
    virtual_s: float
    work: Work = field(default_factory=Work)


def simulate(
    scenario: Scenario, seed: int, *, trace: Callable[[str], None] | None = None, listing: ListingKind | None = None
) -> Outcome:
    """Runs one seed, over a store that lists so, or as the scenario wants. Never raises for what the scenario finds:
    that is in the outcome.
    """
    world = World(seed, trace=trace, listing=listing)
    with _quiet(trace), small(world.rng):
        error = None
        try:
            run(scenario(world), loop=world.loop)
        except Exception as caught:  # noqa: BLE001 whatever ends a run is its verdict
            error = _described(caught)
        virtual_s = world.loop.time() - START_S
        return Outcome(
            seed=seed,
            digest=world.digest(),
            error=error,
            steps=world.loop.steps,
            virtual_s=virtual_s,
            work=_counted(world, virtual_s),
        )


def _counted(world: World, virtual_s: float) -> Work:
    work, history = world.work, world.history
    acknowledged = [attempt for attempt in history.attempts if attempt.acknowledged is not None]
    work.virtual_s = virtual_s
    for injected in (world.loop.injected, world.network.injected, world.store.injected):
        work.injected.update(injected)
    work.batches = len(acknowledged)
    work.records = sum(len(attempt.values) for attempt in acknowledged)
    work.read = len(history.seen)
    work.commits = len(history.commits)
    return work


def ordinary_store_faults(rng: Random) -> StoreFaults:
    """A plan for a seed: from a store that is only slow to one that fails at every tenth request."""
    level = rng.choice((0.0, 0.01, 0.03, 0.1))
    return StoreFaults(
        latency_s_min=0.001,
        latency_s_max=rng.choice((0.005, 0.05, 0.3)),
        slow_probability=rng.choice((0.0, 0.02, 0.1)),
        slow_s_max=rng.choice((1.0, 5.0)),
        not_applied_probability=level,
        unknown_applied_probability=level,
        unknown_not_applied_probability=level,
        unknown_late_probability=level,
        late_s_max=rng.choice((1.0, 30.0)),
        unavailable_probability=level,
        timeout_s=rng.choice((0.5, 5.0)),
    )


def ordinary_network_faults(rng: Random) -> NetworkFaults:
    """A plan for a seed: latency always, cuts often, losses sometimes."""
    return NetworkFaults(
        latency_s_min=0.0001,
        latency_s_max=rng.choice((0.001, 0.02)),
        jitter_s=rng.choice((0.0, 0.001, 0.02)),
        split_probability=rng.choice((0.0, 0.3)),
        loss_probability=rng.choice((0.0, 0.0, 0.01)),
    )


def _described(error: Exception) -> str:
    place = traceback.extract_tb(error.__traceback__)[-1]
    text = str(error) or type(error).__name__
    cause = f"\n  from {error.__cause__!r}" if error.__cause__ is not None else ""
    frames = "".join(traceback.format_exception(error.__cause__ or error)[-6:])
    where = (
        "" if isinstance(error, AssertionError) and "\n" in text else f" ({place.filename}:{place.lineno})\n{frames}"
    )
    return f"{type(error).__name__}: {text}{cause}{where}"


@contextlib.contextmanager
def _quiet(trace: Callable[[str], None] | None) -> Iterator[None]:
    """The services' logs go into the trace or nowhere; the garbage collector runs between runs, where it cannot differ
    between repeats.
    """
    before = structlog.get_config()
    collected = gc.isenabled()
    gc.disable()

    def into_trace(_: Any, method: str, event: Any) -> Any:
        if trace is not None:
            trace(f"    log {method} {event}")
        raise structlog.DropEvent

    level = logging.DEBUG if trace is not None else logging.CRITICAL
    structlog.configure(
        processors=[into_trace],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=False,
    )
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        structlog.configure(**before)
        if collected:
            gc.enable()
