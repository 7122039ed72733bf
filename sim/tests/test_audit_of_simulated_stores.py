"""The audit of what is left in the store when everything is killed at any moment of a run: nothing is wrong with it."""

from random import Random

import pytest
from typing_extensions import Buffer

from bmq_audit.audit import AuditOptions, audit_store
from bmq_audit.findings import Level, Report
from bmq_audit.metadata import NoMetadata
from bmq_broker.coordinators.groups.snapshot import decode_state
from bmq_broker.partitions.producers import Producers
from bmq_broker.segments import manifests
from bmq_sim.clock import SimRng
from bmq_sim.limits import Chance, small
from bmq_sim.loop import VirtualLoop, run
from bmq_sim.scenarios import SCENARIOS
from bmq_sim.store import SimStore
from bmq_sim.world import World, simulate

MOMENTS = 6
STEPS_MAX = 8_000
SEEDS = {"engine": 2, "takeover": 2, "garbage": 1, "quiet": 1, "tight-memory": 1}


def moments(name: str, seed: int) -> tuple[list[dict[str, bytes]], Chance]:
    """What is in the store at some moments of a run, and at its end; and what draws the numbers that are tiny in this
    seed.
    """
    taken: list[dict[str, bytes]] = []
    drawn: list[Chance] = []

    async def scenario(world: World) -> None:
        drawn.append(world.rng)

        def take() -> None:
            taken.append({key: found.data for key, found in world.store.objects.items()})

        chance = Random(f"{seed}/moments")
        for _ in range(MOMENTS):
            world.loop.at_step(world.loop.steps + chance.randrange(1, STEPS_MAX), take)
        await SCENARIOS[name](world)
        take()

    outcome = simulate(scenario, seed)
    assert outcome.error is None, outcome.error
    return taken, drawn[0]


def audited(objects: dict[str, bytes]) -> Report:
    options = AuditOptions(
        decode_producers=Producers.decode,
        decode_state=lambda topic, data: decode_state(data) if topic == "__consumer_offsets" else None,
        versions_kept=manifests.KEPT_VERSIONS,
        at_once=4,
    )

    async def audit() -> Report:
        store = SimStore(page_keys=100).for_node("audit")
        for key, data in objects.items():
            parts: list[Buffer] = [data]
            await store.create(key, parts)
        found = await audit_store(store, rng=SimRng(Random(0)), options=options)
        return found.report

    return run(audit(), loop=VirtualLoop(steps_max=5_000_000))


@pytest.mark.parametrize("name", SEEDS)
def test_a_store_of_which_everything_was_killed_has_no_faults(name: str) -> None:
    wrong = []
    for seed in range(SEEDS[name]):
        taken, chance = moments(name, seed)
        for at, objects in enumerate(taken):
            try:
                with small(chance):  # what a log is replayed with is what it was written with
                    report = audited(objects)
            except NoMetadata:
                continue  # before the first entry
            wrong += [
                f"{name} {seed} at {at}: {fault.kind} {fault.key} {fault.topic}: {fault.means}"
                for fault in report.findings[Level.FAULT]
            ]
    assert wrong == []
