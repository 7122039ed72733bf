"""Which lane is nested in which: what comes first where some are made or deleted together."""

from collections.abc import Callable, Iterable, Mapping


def depths(parents: Mapping[str, str]) -> Callable[[str], int]:
    """How many of these lanes one is nested in, one in the other; `parents` has the parent of each, "" for none."""

    def depth(name: str) -> int:
        seen: set[str] = set()
        while (name := parents.get(name, "")) and name not in seen:
            seen.add(name)
        return len(seen)

    return depth


def innermost_first(names: Iterable[str], parents: Mapping[str, str]) -> list[str]:
    """In their order, but for lanes that another one of them is nested in, which come after it."""
    return sorted(names, key=depths(parents), reverse=True)
