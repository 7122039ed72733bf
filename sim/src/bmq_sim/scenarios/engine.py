"""One node with all roles over a store that fails, clients of every kind, kills, pauses, outages, and a second incarnation now and then.

In the end everything is healed, the producers finish, every partition is read through the front door, and all invariants are checked.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from random import Random
from typing import Any

from bmq_sim.checkers import InvariantViolated, check
from bmq_sim.client import SimClient
from bmq_sim.consumer import FollowingConsumer, read_final
from bmq_sim.group_member import GroupMember
from bmq_sim.history import Place
from bmq_sim.node import Supervisor
from bmq_sim.process import SimProcess
from bmq_sim.producer import IdempotentProducer, PlainProducer
from bmq_sim.world import World, ordinary_network_faults, ordinary_store_faults

TOPIC = "orders"
HEALED_WITHIN_S = 900.0
"""Virtual time after healing by which every client must be done: what takes longer is stuck."""


@dataclass(slots=True)
class _Workload:
    """Clients that finish by themselves, and those that follow until they are told to stop."""

    finishing: "list[asyncio.Task[None]]"
    following: "list[asyncio.Task[None]]"
    places: list[Place]


async def scenario(world: World) -> None:
    """One run."""
    rng = world.rng("scenario")
    world.store.faults = ordinary_store_faults(rng)
    world.network.faults = ordinary_network_faults(rng)
    places = [Place(TOPIC, partition) for partition in range(rng.choice((1, 2)))]
    supervisor = Supervisor(world)
    supervisor.start()
    admin = SimClient("admin", supervisor.addresses, rng=world.rng("admin"))
    configs = {"segment.ms": str(rng.choice((500, 5_000, 604_800_000)))}
    await admin.create_topic(TOPIC, partitions=len(places), configs=configs)
    workload = _start_clients(world, supervisor, places, rng)
    for _ in range(rng.choice((0, 1, 1, 2, 3, 5))):
        await asyncio.sleep(rng.random() * rng.choice((0.2, 2, 8)))
        await _accident(world, supervisor, rng)
    await asyncio.sleep(rng.random() * 5)
    world.note("heal")
    supervisor.settle()
    world.store.heal()
    world.network.heal()
    world.network.faults = ordinary_network_faults(Random(0))
    await _within(world, asyncio.get_running_loop().create_task(_finish(world, supervisor, workload, admin)))
    check(world.history)
    supervisor.check()


async def _finish(world: World, supervisor: Supervisor, workload: _Workload, admin: SimClient) -> None:
    rng = world.rng("finish")
    await asyncio.gather(*workload.finishing)
    await asyncio.sleep(10)
    for task in workload.following:
        task.cancel()
    await asyncio.gather(*workload.following, return_exceptions=True)
    if rng.random() < 0.5:
        supervisor.kill()
        await asyncio.sleep(rng.random() * 3)
    for place in workload.places:
        await read_final(admin, world.history, place)


async def _within(world: World, finishing: "asyncio.Task[None]") -> None:
    """Awaits the task; says who waits where, if it takes too long."""
    await asyncio.wait((finishing,), timeout=HEALED_WITHIN_S)
    if not finishing.done():
        raise InvariantViolated("clients are stuck although all is well:\n" + "\n".join(world.loop.pending_tasks()))
    await finishing


def _start_clients(world: World, supervisor: Supervisor, places: list[Place], rng: Random) -> _Workload:
    workload = _Workload([], [], places)

    def client(name: str) -> SimClient:
        return SimClient(name, supervisor.addresses, rng=world.rng(name))

    def begin(name: str, program: Coroutine[Any, Any, None], tasks: "list[asyncio.Task[None]]") -> None:
        tasks.append(SimProcess(name, host=name).start(program))

    history = world.history
    for place in places:
        for index in range(rng.choice((1, 2))):
            name = f"idempotent-{index}-{place.partition}"
            producer = IdempotentProducer(client(name), history, place, batches=rng.randint(5, 15), pace_s=rng.choice((0.01, 0.3, 2)))
            begin(name, producer.run(), workload.finishing)
        if rng.random() < 0.5:
            name = f"plain-{place.partition}"
            plain = PlainProducer(client(name), history, place, batches=rng.randint(3, 10), pace_s=rng.choice((0.01, 0.3, 2)))
            begin(name, plain.run(), workload.finishing)
        if rng.random() < 0.7:
            name = f"follower-{place.partition}"
            begin(name, FollowingConsumer(client(name), history, place).run(), workload.following)
    for index in range(rng.choice((0, 1, 2))):
        name = f"member-{index}"
        member = GroupMember(client(name), history, group="group", places=places)
        begin(name, member.run(), workload.following)
    return workload


async def _accident(world: World, supervisor: Supervisor, rng: Random) -> None:
    kind = rng.choice(("kill", "kill", "kill", "pause", "outage", "connections", "cut off", "second", "stop"))
    world.note(f"accident {kind}")
    match kind:
        case "kill":
            supervisor.kill_within(steps=rng.choice((10, 300, 3000)))
        case "pause":
            await supervisor.pause(rng.random() * rng.choice((1, 30)))
        case "outage":
            world.store.outage(rng.choice((5, 60)))
        case "connections":
            world.network.lose_connections(supervisor.addresses[0][0], probability=0.5)
        case "cut off":
            supervisor.cut_off(rng.random() * 20)
        case "second":
            supervisor.start_second()
        case "stop":
            supervisor.stop()
