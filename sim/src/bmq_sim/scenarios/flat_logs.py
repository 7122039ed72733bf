"""A flat log: writers of growing epochs that do not know of each other's fate, readers, snapshots and deletions.

Checked: what was appended (the call returned) is on the one chain that the newest entry ends, and so is everything that
a reader was shown.
"""

import asyncio

from bmq.errors import Fenced, UnknownOutcome
from bmq.storage.flatlog import Entry, FlatLog, GapFound, Overtaken, decode_entry
from bmq.values import Nonce
from bmq_sim.checkers import InvariantViolated
from bmq_sim.clock import SimRng
from bmq_sim.process import SimProcess
from bmq_sim.world import World, ordinary_store_faults

PREFIX = "log/"


class _Known:
    """What writers were told and readers were shown, by nonce."""

    def __init__(self) -> None:
        self.appended: dict[Nonce, Entry] = {}
        self.shown: dict[Nonce, Entry] = {}


async def scenario(world: World) -> None:
    """A handful of writers, one after the other and beside each other, and two readers."""
    rng = world.rng("scenario")
    world.store.faults = ordinary_store_faults(rng)
    world.store.keep_all = True
    known = _Known()
    writers = []
    readers = [
        SimProcess(f"reader-{index}", host="r").start(_read(world, f"reader-{index}", known)) for index in range(2)
    ]
    for epoch in range(1, rng.randint(2, 6)):
        process = SimProcess(f"writer-{epoch}", host=f"w{epoch}")
        writing = process.start(_write(world, process.name, known, epoch=epoch))
        await asyncio.sleep(rng.random() * rng.choice((0.3, 3, 10)))
        match rng.choice(("kill", "pause", "cut off", "none")):
            case "kill":
                world.kill_within(process, steps=100, rng=rng)
            case "pause":
                world.loop.pause(process)
                writers.append((process, writing))
            case "cut off":
                world.store.cut_off(process.name, rng.random() * 30)
                writers.append((process, writing))
            case _:
                writers.append((process, writing))
        await asyncio.sleep(rng.random() * rng.choice((0.01, 5)))
    for process, _ in writers:
        world.loop.resume(process)
    world.store.heal()
    await asyncio.sleep(100)
    await asyncio.gather(*(writing for _, writing in writers), *readers)
    await _write(world, "last", known, epoch=100)
    await _check(world, known)


async def _write(world: World, name: str, known: _Known, *, epoch: int) -> None:
    """Claims, then appends until it is fenced or has done enough; deletes what a snapshot would cover."""
    rng = world.rng(name)
    log = FlatLog(world.store.for_node(name), PREFIX, rng=SimRng(rng), what="log")
    base = await log.newest()
    mine: Entry | None = None
    for number in range(rng.randint(1, 12)):
        payload = f"{name}:{number}".encode()
        if base is not None and base.epoch > epoch:
            world.note(f"{name} has been replaced")
            return
        try:
            if mine is None and (base is None or base.epoch < epoch):
                entry = await log.claim(base, epoch=epoch, payload=payload)
            else:
                assert base is not None
                entry = await log.append(base, epoch=epoch, payload=payload)
        except Fenced:
            world.note(f"{name} is fenced")
            return
        except Overtaken as overtaken:
            base = overtaken.entry
            continue
        except UnknownOutcome:
            continue
        world.note(f"{name} appended {entry.number}")
        known.appended[entry.nonce] = entry
        base = mine = entry
        if rng.random() < 0.3:
            await log.delete_covered(rng.randrange(1, entry.number + 1))
        await asyncio.sleep(rng.random() * rng.choice((0.0, 0.5)))


async def _read(world: World, name: str, known: _Known) -> None:
    """Follows the log; after a gap it starts again from the newest entry, as from a snapshot."""
    rng = world.rng(name)
    log = FlatLog(world.store.for_node(name), PREFIX, rng=SimRng(rng), what="log")
    at: Entry | None = None
    for _ in range(40):
        try:
            async for entry in log.read_forward(at):
                if at is not None and entry.number != at.number + 1:
                    raise InvariantViolated(f"{name} was shown {entry.number} after {at.number}")
                at = entry
                known.shown[entry.nonce] = entry
        except GapFound:
            at = None
            await asyncio.sleep(rng.random())
        await asyncio.sleep(rng.random() * 2)


async def _check(world: World, known: _Known) -> None:
    every = {
        entry.nonce: entry
        for key, data in world.store.ever
        if key.startswith(PREFIX)
        for entry in [decode_entry(data, what=key)]
    }
    log = FlatLog(world.store.for_node("check"), PREFIX, rng=SimRng(1), what="log")
    entry = await log.newest()
    chain: set[Nonce] = set()
    while entry is not None:
        chain.add(entry.nonce)
        entry = every.get(entry.predecessor)
    for said, entries in (("appended", known.appended), ("shown to a reader", known.shown)):
        for nonce, told in entries.items():
            if nonce not in chain:
                raise InvariantViolated(f"entry {told.number} of epoch {told.epoch} was {said} and is not in the log")
