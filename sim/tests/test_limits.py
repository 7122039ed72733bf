"""Numbers in the services beyond which another way opens are known to the simulator: tiny in seeded runs, or left as
they are for a reason.
"""

import ast
import importlib
import re
from collections.abc import Iterator, Sequence
from random import Random
from typing import Final, TypeVar
from unittest.mock import patch

from bmq_node.configuration.values import Role
from bmq_sim.cluster.settings import ClusterSettings, NodeSpec
from bmq_sim.limits import FIXED, IMPORTED, SMALL, Draws, small
from bmq_sim.lines import watched_modules
from bmq_sim.node import NodeSettings
from bmq_sim.world import World

T = TypeVar("T")
BROKER: Final = NodeSpec(node_id=101, role=Role.BROKER)

SETTINGS = re.compile(r"_?[A-Z][A-Z0-9_]*")


def numbers(*, of_proxies: bool = True) -> Iterator[str]:
    """module:NAME of every number that a watched module defines."""
    for module, path in watched_modules().items():
        if module.startswith("bmq_proxy") and not of_proxies:
            continue
        for node in ast.parse(path.read_text()).body:
            target = (
                node.target
                if isinstance(node, ast.AnnAssign)
                else node.targets[0]
                if isinstance(node, ast.Assign)
                else None
            )
            if isinstance(target, ast.Name) and SETTINGS.fullmatch(target.id):
                value = getattr(importlib.import_module(module), target.id)
                if isinstance(value, int | float) and not isinstance(value, bool):
                    yield f"{module}:{target.id}"


def test_every_number_of_what_keeps_data_is_tiny_in_some_seeds_or_stays_for_a_reason() -> None:
    """A proxy's bound answers: each has a test of its own, and no seed loses anything by them."""
    unknown = [
        one
        for one in numbers(of_proxies=False)
        if one not in SMALL and not any(re.fullmatch(pattern, one) for pattern in FIXED)
    ]
    assert unknown == [], (
        "give them to SMALL if another way opens beyond them, or to FIXED with why no seed has to change them "
        "(bmq_sim.limits)"
    )


def test_no_reason_is_left_without_a_number() -> None:
    found = list(numbers())
    assert [pattern for pattern in FIXED if not any(re.fullmatch(pattern, one) for one in found)] == []


def test_tiny_numbers_hold_for_a_run_and_no_longer_wherever_they_are_imported() -> None:
    def values() -> dict[str, int]:
        holders = {place: (place.split(":")[0], *IMPORTED.get(place, ())) for place in SMALL}
        return {
            f"{holder}:{place}": getattr(importlib.import_module(holder), place.split(":")[1])
            for place in holders
            for holder in holders[place]
        }

    shipped = values()
    with small(lambda name: Random(f"1/{name}")):
        changed = values()
        assert sum(changed[place] != shipped[place] for place in shipped) > 0
        for place in IMPORTED:
            assert len({changed[one] for one in changed if one.endswith(place)}) == 1
    assert values() == shipped


def test_an_entry_more_moves_none_of_the_others() -> None:
    def values(table: dict[str, Sequence[int]], seed: int) -> dict[str, int]:
        with patch("bmq_sim.limits.SMALL", new=table), small(lambda name: Random(f"{seed}/{name}")):
            return {
                place: getattr(importlib.import_module(place.split(":")[0]), place.split(":")[1]) for place in SMALL
            }

    fewer = dict(reversed(list(SMALL.items())[1::2]))
    for seed in range(5):
        whole, some = values(dict(SMALL), seed), values(fewer, seed)
        assert [place for place in fewer if some[place] != whole[place]] == []


def test_a_setting_more_moves_none_of_the_others() -> None:
    class MoreDraws(Draws):
        def choice(self, name: str, choices: Sequence[T]) -> T:
            super().choice(f"before {name}", (1, 2, 3))
            return super().choice(name, choices)

    for seed in range(5):
        world, other = World(seed), World(seed)
        with patch("bmq_sim.node.Draws", new=MoreDraws), patch("bmq_sim.cluster.settings.Draws", new=MoreDraws):
            more, more_of_cluster = NodeSettings(other.rng), ClusterSettings(other.rng)
            started = [more_of_cluster.of(BROKER, start=start) for start in (1, 2)]
        assert more.made == NodeSettings(world.rng).made
        settings = ClusterSettings(world.rng)
        assert [settings.of(BROKER, start=start) for start in (1, 2)] == started
        assert started[0].broker != started[1].broker
