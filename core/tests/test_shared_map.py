"""Mappings whose versions share what they have in common, beside plain dicts that do the same."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from bmq.metadata.shared_map import LEAF_MAX, Differences, SharedMap, Successor, changed, differences

MANY = 20 * LEAF_MAX


class Key(int):
    """Counts how often keys are looked for."""

    looked_for = 0

    def __hash__(self) -> int:
        Key.looked_for += 1
        return int.__hash__(self)


def applied(base: dict[int, object], writes: Sequence[tuple[int, object]]) -> dict[int, object]:
    after = dict(base)
    for key, value in writes:
        if value is None:
            after.pop(key, None)
        else:
            after[key] = value
    return after


def as_sets(found: Differences[int, object]) -> tuple[set[tuple[int, int, int]], set[tuple[int, int]]]:
    return (
        {(key, id(before), id(value)) for key, before, value in found.changed},
        {(key, id(value)) for key, value in found.gone},
    )


def obvious(old: dict[int, object], new: dict[int, object]) -> tuple[set[tuple[int, int, int]], set[tuple[int, int]]]:
    return (
        {(key, id(old.get(key)), id(value)) for key, value in new.items() if old.get(key) is not value},
        {(key, id(value)) for key, value in old.items() if key not in new},
    )


entries = st.tuples(st.integers(0, 40), st.sampled_from(["a", "b", "c", None]))
sizes = st.sampled_from([0, 1, 10, LEAF_MAX - 1, LEAF_MAX, 3 * LEAF_MAX])


@given(sizes, st.lists(st.tuples(st.lists(entries, max_size=12), sizes), max_size=4))
def test_versions_and_their_differences_are_those_of_dicts(
    size: int, steps: list[tuple[list[tuple[int, object]], int]]
) -> None:
    twin: dict[int, object] = dict.fromkeys(range(size), "x")
    shared: SharedMap[int, object] = SharedMap(twin)
    for writes, wanted in steps:
        more = [(key, "y") for key in range(len(twin), wanted)] + [(key, None) for key in range(wanted, len(twin))]
        before, before_twin = shared, twin
        shared, twin = changed(shared, [*writes, *more]), applied(twin, [*writes, *more])
        assert before == before_twin, "an earlier version does not change"
        assert shared == twin
        assert len(shared) == len(twin) == len(list(shared)) == len(list(shared.values()))
        assert dict(shared.items()) == twin
        assert [shared.get(key, "none") for key in range(-1, 50)] == [twin.get(key, "none") for key in range(-1, 50)]
        assert as_sets(differences(before, shared)) == obvious(before_twin, twin)
        assert as_sets(differences(before_twin, shared)) == obvious(before_twin, twin)


def test_a_small_mapping_keeps_the_order_in_which_its_entries_came() -> None:
    names = [f"name {number}" for number in range(100)]
    successor = Successor(SharedMap[str, int]())
    for name in names:
        successor[name] = 1
    successor.pop(names[3])
    assert list(successor.version()) == [*names[:3], *names[4:]]


def test_neither_a_change_nor_telling_it_looks_for_every_key() -> None:
    before = SharedMap({Key(number): object() for number in range(MANY)})
    key = Key(7)
    Key.looked_for = 0
    successor = Successor(before)
    successor[key] = now = object()
    after = successor.version()
    assert differences(before, after).changed == [(7, before[key], now)]
    assert Key.looked_for <= 10
    made = Successor(after)
    made[Key(MANY)] = now
    assert differences(after, made.version()).changed == [(MANY, None, now)]
    assert Key.looked_for <= 20
    gone = Successor(after)
    gone.pop(key)
    assert differences(after, gone.version()).gone == [(7, now)]
    assert Key.looked_for <= LEAF_MAX, "those of one leaf"


def test_a_mapping_that_shrinks_has_fewer_leaves_again() -> None:
    full = SharedMap(dict.fromkeys(range(MANY), "x"))
    few = changed(full, [(key, None) for key in range(10, MANY)])
    assert list(few) == list(range(10))
    assert few == dict.fromkeys(range(10), "x")
    assert len(differences(few, changed(few, [(10, "y")])).changed) == 1
