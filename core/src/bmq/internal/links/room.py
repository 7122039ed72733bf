"""The memory of produce calls that a server works on, of all its connections together. Counts; holds nothing."""

from collections.abc import Callable


class ProduceRoom:
    """Who finds it full stops reading and is told when there is some again, first come first served."""

    __slots__ = ("_limit_bytes", "_waiting", "held_bytes")

    def __init__(self, limit_bytes: int) -> None:
        assert limit_bytes > 0
        self._limit_bytes = limit_bytes
        self._waiting: dict[Callable[[], None], None] = {}
        self.held_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether no more is to be read for now."""
        return self.held_bytes >= self._limit_bytes

    def hold(self, size_bytes: int) -> None:
        """Counts what has come; never fails."""
        self.held_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        """Its call is over."""
        self.held_bytes -= size_bytes
        assert self.held_bytes >= 0
        if self._waiting and not self.is_full:
            waiting, self._waiting = self._waiting, {}
            for resume in waiting:
                resume()

    def wait(self, resume: Callable[[], None]) -> None:
        """`resume` is called once when there is room; who finds it full again waits again."""
        self._waiting[resume] = None

    def withdraw(self, resume: Callable[[], None]) -> None:
        """It does not wait any more."""
        self._waiting.pop(resume, None)
