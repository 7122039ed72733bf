"""Writers, sealers and readers of one stream on a bad store, seed by seed: the safety property of
models/stream_model.py, on the real code.

Safety: once a sealer has its number and has read, every number that the writer ever acknowledged, before or after, is
below the checkpoint or was read; nothing is read above a hole; and all sealers get the same number.

A failure prints its seed; `explore(seed)` repeats that run exactly.
"""

import asyncio
from dataclasses import dataclass, field
from uuid import UUID

import pytest
from scripted_store import Faults, ScriptedStore, SeededRng, run
from tests.waiting import until_async

from bmq.errors import BmqError, Fenced, NotReady
from bmq.storage.durable import LatencyWindow
from bmq.storage.stream import StreamWriter, WalObjectMissing, kept_of, read_stream, seal_stream
from bmq.storage.wal import WalRun
from bmq.values import BrokerEpoch, LeaderEpoch, ManifestVersion, NodeId, Offset, StreamId, TopicId, TopicPartition

STREAM = StreamId(NodeId(1), BrokerEpoch(1))
TP = TopicPartition(TopicId(UUID(int=1)), 0)
SEALERS = 3
OBJECTS_MAX = 400
SEEDS = 200
A_PART = 50


@dataclass
class Run:
    """What happened in one run."""

    seed: int
    store: ScriptedStore
    payloads: dict[int, bytes] = field(default_factory=dict)
    acknowledged: list[int] = field(default_factory=list)
    checkpoint: int = 0
    fenced: list[BmqError] = field(default_factory=list)
    reads: list[tuple[int, int, dict[int, bytes]]] = field(default_factory=list)
    """Each sealer's checkpoint when it began to read, seal, and what it read."""
    sealed: bool = False
    stopped_at: int | None = None
    """Where the owner sealed its own stream, if it stopped cleanly."""


async def write(r: Run, rng: SeededRng) -> None:
    """The owner: it writes in bursts, rolls, deletes, sleeps, checks its fence, until it is fenced."""

    def durable(number: int) -> None:
        assert number == len(r.acknowledged), f"seed {r.seed}: completed {number} after {r.acknowledged[-1:]}"
        r.acknowledged.append(number)

    writer = StreamWriter(
        r.store,
        STREAM,
        cluster_id="c",
        rng=rng,
        on_durable=durable,
        on_fenced=r.fenced.append,
        latency=LatencyWindow(samples_min=4) if r.seed % 2 else None,
    )
    loop = asyncio.get_running_loop()
    checks: list[asyncio.Task[None]] = []

    async def check() -> None:
        sealed_before = r.sealed
        await writer.verify_not_sealed()
        assert not sealed_before, f"seed {r.seed}: a sealed writer was told that it is not"

    while not r.fenced and len(r.payloads) < OBJECTS_MAX:
        for _ in range(1 + int(rng.random() * 4)):
            if writer.has_room:
                payload = b"%d" % len(r.payloads)
                r.payloads[
                    writer.submit([WalRun(TP, LeaderEpoch(1), ManifestVersion(0), Offset(0), Offset(0), 0, [payload])])
                ] = payload
        if not r.sealed and rng.random() < 0.5:  # a roll; what comes after a take-over is models/takeover_model.py's
            r.checkpoint = max(r.checkpoint, len(r.acknowledged) - int(rng.random() * 4))
            writer.checkpoint(r.checkpoint)
        if rng.random() < 0.2:
            checks.append(loop.create_task(check()))
        if rng.random() < 0.004:
            try:
                r.stopped_at = await writer.seal_own()
                assert not r.fenced, f"seed {r.seed}: fenced by its own seal"
            except Fenced:
                assert r.fenced
            break
        await asyncio.sleep(rng.random() * (2.0 if rng.random() < 0.05 else 0.05))
    await until_async(lambda: r.fenced or not writer.in_flight, "nothing to be in flight", 3_600, every_s=0.1)
    if not r.fenced:
        with pytest.raises(Fenced):
            await writer.verify_not_sealed()
    await writer.close()
    for outcome in await asyncio.gather(*checks, return_exceptions=True):
        if outcome is not None and not isinstance(outcome, Fenced | NotReady):
            raise outcome


async def take_over(r: Run, rng: SeededRng) -> None:
    """A controller that seals, some time in the run, perhaps gives up in the middle, and reads."""
    await asyncio.sleep(rng.random() * 4)
    if rng.random() < 0.3:
        try:
            async with asyncio.timeout(rng.random()):
                await seal_stream(r.store, STREAM, cluster_id="c", rng=rng)
        except TimeoutError:
            await asyncio.sleep(rng.random())
    end = await seal_stream(r.store, STREAM, cluster_id="c", rng=rng)
    r.sealed = True
    while True:
        checkpoint = r.checkpoint
        start = (await kept_of(r.store, STREAM, rng=rng)).first
        assert start <= max(checkpoint, r.checkpoint), (
            f"seed {r.seed}: reading begins at {start}, above the checkpoint {r.checkpoint}"
        )
        try:
            found = {
                wal.header.number: bytes(wal.run(wal.entries[0]))
                async for wal in read_stream(r.store, STREAM, start=start, end=end, rng=rng)
            }
        except WalObjectMissing as error:  # deleted since: then the checkpoint explains it
            assert error.number < r.checkpoint, (
                f"seed {r.seed}: {error.number} is missing, the checkpoint is {r.checkpoint}"
            )
            continue
        r.reads.append((start, end, found))
        return


async def play(seed: int) -> Run:
    rng = SeededRng(seed)
    faults = Faults(
        delay_s=rng.source.choice((0.02, 0.1, 0.4)),
        slow=rng.source.choice((0.05, 0.2, 0.4)),
        lost_after=rng.source.choice((0.02, 0.1, 0.3)),
        lost_before=0.04,
        not_applied=0.04,
        unavailable=0.04,
    )
    r = Run(seed, ScriptedStore(faults, seed=seed))
    sealers = [SeededRng(seed * 100 + n) for n in range(SEALERS)]
    await asyncio.gather(write(r, rng), *(take_over(r, sealer) for sealer in sealers))
    r.store.faults = Faults()
    await asyncio.sleep(60)  # everything that was on its way has arrived
    await take_over(r, rng)
    return r


def explore(seed: int) -> Run:
    """One run, judged."""
    r = run(play(seed))
    ends = {end for _, end, _ in r.reads} | ({r.stopped_at} if r.stopped_at is not None else set())
    assert len(ends) == 1, f"seed {seed}: sealers got {sorted(ends)}"
    (end,) = ends
    assert len(r.acknowledged) <= end, f"seed {seed}: {r.acknowledged[-1]} was acknowledged at or above the seal {end}"
    for start, _, found in r.reads:
        assert list(found) == list(range(start, end)), f"seed {seed}: read {list(found)} of {start} to {end}"
        for number, payload in found.items():
            assert payload == r.payloads[number], f"seed {seed}: number {number} holds another's bytes"
    return r


@pytest.mark.parametrize("seeds", [range(start, start + A_PART) for start in range(0, SEEDS, A_PART)], ids=str)
def test_nothing_acknowledged_is_lost_whatever_the_store_does(seeds: range) -> None:
    deleted = fenced = 0
    for seed in seeds:
        r = explore(seed)
        deleted += len(r.store.done("delete"))
        fenced += len(r.fenced)
    assert deleted > len(seeds)
    assert fenced > len(seeds) // 2


def test_a_seed_repeats_exactly() -> None:
    assert explore(4711).store.log == explore(4711).store.log
