"""Which blocks of a file are free. Pure."""

from bisect import bisect_left


class Blocks:
    """Those from `first` to before `end`. Free ones are runs that touch none of the others."""

    def __init__(self, first: int, end: int) -> None:
        self._firsts: list[int] = [first] if first < end else []
        self._ends: list[int] = [end] if first < end else []
        self.free = max(0, end - first)

    def take(self, count: int) -> int | None:
        """The first of so many in a row, which are free no more: the lowest there are; None: there are not so many."""
        for at, (first, end) in enumerate(zip(self._firsts, self._ends, strict=True)):
            if end - first >= count:
                self._cut(at, first, first + count)
                return first
        return None

    def reserve(self, first: int, count: int) -> None:
        """These are free no more; they were."""
        at = bisect_left(self._ends, first + 1)
        assert at < len(self._firsts) and self._firsts[at] <= first and first + count <= self._ends[at]
        self._cut(at, first, first + count)

    def give(self, first: int, count: int) -> None:
        """These are free again; they were not."""
        end = first + count
        at = bisect_left(self._firsts, first)
        assert at == len(self._firsts) or end <= self._firsts[at], "given back twice"
        assert at == 0 or self._ends[at - 1] <= first, "given back twice"
        self.free += count
        touches_next = at < len(self._firsts) and self._firsts[at] == end
        if at and self._ends[at - 1] == first:
            self._ends[at - 1] = self._ends[at] if touches_next else end
            if touches_next:
                del self._firsts[at], self._ends[at]
        elif touches_next:
            self._firsts[at] = first
        else:
            self._firsts.insert(at, first)
            self._ends.insert(at, end)

    def _cut(self, at: int, first: int, end: int) -> None:
        """Takes `first` to before `end` out of the run at that place."""
        self.free -= end - first
        run_first, run_end = self._firsts[at], self._ends[at]
        rest = [(a, b) for a, b in ((run_first, first), (end, run_end)) if a < b]
        self._firsts[at : at + 1] = [a for a, _ in rest]
        self._ends[at : at + 1] = [b for _, b in rest]
