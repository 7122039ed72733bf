"""Which messages of a spool need nothing more. Pure."""

from collections.abc import Iterable


class Done:
    """All below `low`, and some above it: as many as are with the producer at most."""

    def __init__(self, low: int) -> None:
        self.low = low
        self._above: set[int] = set()

    def __contains__(self, number: int) -> bool:
        return number < self.low or number in self._above

    def has_all(self, first: int, end: int) -> bool:
        """Those from `first` to before `end`."""
        return end <= self.low or all(number in self for number in range(first, end))

    def lacking(self, end: int) -> int:
        """How many below `end` are not done."""
        return max(0, end - self.low - len(self._above))

    def has_none(self, first: int) -> bool:
        """Those of messages from `first` on."""
        return first >= self.low and not self._above

    def add(self, numbers: range) -> None:
        """Those, too."""
        if numbers.start > self.low:
            self._above.update(numbers)
            return
        if numbers.stop <= self.low:
            return
        if self._above:
            self._above.difference_update(range(self.low, numbers.stop))
        self.low = numbers.stop
        while self.low in self._above:
            self._above.remove(self.low)
            self.low += 1


def runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Ascending numbers as (first, count) of those that follow each other."""
    found: list[tuple[int, int]] = []
    first = count = 0
    for number in numbers:
        if count and number == first + count:
            count += 1
            continue
        if count:
            found.append((first, count))
        first, count = number, 1
    if count:
        found.append((first, count))
    return found
