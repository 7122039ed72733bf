"""Whenever a roll is halted, and by whatever: what the operator drained gets partitions again, or is told of."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rolling_world import Rolling
from test_clusters_drained import found

from bmq_admin.errors import AdminUnreachable
from bmq_operator.clusters.asking import Answer
from bmq_operator.clusters.drained import back_in_use, unused_note, why_left
from bmq_operator.clusters.upgrade import Idle, Uncordon, Wait
from bmq_operator.conditions import Finding

LOOKS_MAX = 400
HALTS = ("not allowed", "not understood", "paused")
HALTED_LOOKS = 20
"""Enough for what was deleted before to be back."""


def nobody_listens(line: str) -> None:
    """What happens is not compared here."""


async def whole(world: Rolling) -> None:
    for _ in range(LOOKS_MAX):
        if await world.looks():
            return
    raise AssertionError("it is never as the spec says")


def unused(world: Rolling) -> set[int]:
    """The brokers that live and get no partitions."""
    return world.nodes.cordoned & world.alive()


async def halted(world: Rolling, by: str) -> None:
    """For a while; then it goes on."""
    halt = {
        "not allowed": world.obstructed,
        "not understood": world.of_another_version,
        "paused": lambda is_so: world.change(paused=is_so),
    }[by]
    halt(True)
    for _ in range(HALTED_LOOKS):
        await world.looks()
    if by == "paused":
        assert all(world.tells_of(node_id) for node_id in unused(world))
    else:
        assert not unused(world), "it is about objects, and not about who owns partitions"
    halt(False)


@settings(max_examples=25, deadline=None)
@given(
    brokers=st.integers(2, 3),
    wanted=st.integers(1, 3),
    halts=st.lists(st.tuples(st.integers(0, 45), st.sampled_from(HALTS), st.booleans()), min_size=1, max_size=3),
)
def test_whenever_a_roll_is_halted_what_was_drained_for_it_is_of_use_or_told(
    *, brokers: int, wanted: int, halts: list[tuple[int, str, bool]]
) -> None:
    async def life() -> None:
        world = Rolling(nobody_listens, counts={"controllers": 1, "brokers": brokers, "proxies": 1})
        await whole(world)
        world.nodes.are_made(12)
        world.change(image={"repository": "bmq", "tag": "2"}, brokers={"replicas": wanted})
        for looks, by, starts_anew in halts:
            for _ in range(looks):
                await world.looks()
            if starts_anew:
                world.operator_starts()
            await halted(world, by)
        await whole(world)
        assert not unused(world)
        assert "prod-broker" not in world.told_of_brokers()

    asyncio.run(life())


def test_who_can_have_partitions_is_taken_back() -> None:
    def step(drained: int, *, alive: bool = True) -> Uncordon | None:
        seen = found(cordoned=(1001,), alive=alive)
        assert back_in_use(seen.pods, None, frozenset((drained,))) is None, "nobody is there to be asked"
        return back_in_use(seen.pods, seen.answer.state, frozenset((drained,)))

    taken = step(1001)
    assert taken is not None and taken.node_id == 1001
    assert step(1001, alive=False) is None and step(1009) is None


def told(left: str, *, answer: Answer | None = None, marks: tuple[int, ...] = (1001,)) -> Finding | None:
    seen = found(cordoned=(1001, 1002))
    return unused_note(seen.pods, answer or seen.answer, frozenset(marks), left=left)


def test_who_is_not_taken_back_is_named_with_why_and_beside_those_that_somebody_else_cordoned() -> None:
    waits = Wait(reason="Halted", message="the leading controller was asked, and has not done it")
    left = why_left(waits, paused=False, halted=True)
    both, own = told(left), told(left, marks=(1001, 1002))
    assert both is not None and own is not None
    assert (both.reason, own.reason) == ("Cordoned", "Drained")
    assert "prod-broker-1 gets no partitions: drained by the operator" in both.message and waits.message in both.message
    assert "prod-broker-2 gets no partitions: cordoned by somebody" in both.message
    assert "prod-broker-1, prod-broker-2 get no partitions" in own.message


def test_where_nobody_can_be_asked_whether_it_gets_partitions_is_not_known() -> None:
    answer = Answer(finding=Finding(status="False", reason="NoController", message="no controller is ready"))
    note = told(why_left(Idle(), paused=False, halted=True), answer=answer)
    assert note is not None and note.status == "Unknown"
    assert "prod-broker-1 may get no partitions" in note.message and "no controller is ready" in note.message
    assert told("", answer=answer) is None, "a roll that goes on drains, and waits for controllers"


def test_what_a_roll_that_goes_on_drained_and_what_is_taken_back_is_not_told() -> None:
    taken = Uncordon(reason="Halted", message="it gets partitions again", node_id=1001)
    assert not why_left(Idle(), paused=False, halted=False) and not why_left(taken, paused=False, halted=True)
    assert why_left(Idle(), paused=True, halted=False)


def test_a_controller_that_refuses_to_take_it_back_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(*_: Any) -> None:
        raise AdminUnreachable("it does not answer")

    async def life() -> None:
        world = Rolling(nobody_listens, counts={"controllers": 1, "brokers": 2, "proxies": 1})
        await whole(world)
        world.nodes.are_made(12)
        world.change(image={"repository": "bmq", "tag": "2"})
        while not world.nodes.cordoned:
            await world.looks()
        monkeypatch.setattr("bmq_operator.clusters.steps.uncordon", silent)
        world.obstructed(True)
        await world.looks()
        assert unused(world) and all(world.tells_of(one) for one in unused(world))
        assert "it does not answer" in world.told_of_brokers()
        monkeypatch.undo()
        await world.looks()
        assert not unused(world)

    asyncio.run(life())
