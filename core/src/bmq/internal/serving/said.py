"""What members of groups say to a broker of another process, from its arrival until their group has it and counts it.
Pure.

Meanwhile the proxy that sent it has it no more, and a coordinator that is loading makes many wait at once.
"""

from collections import Counter
from collections.abc import Callable

from bmq.errors import NotReady
from bmq.internal.limits import SAID_ADDRESS_BYTES_MAX, SAID_BYTES_MAX


class SaidBytes:
    """By the clients' addresses. One request alone always has room."""

    def __init__(self) -> None:
        self._held: Counter[str] = Counter()
        self._held_bytes = 0

    def hold(self, address: str, size_bytes: int) -> Callable[[], None]:
        """What gives the room back; more than once is once. Raises NotReady where there is none."""
        self._check(f"clients at {address}", self._held[address], size_bytes, SAID_ADDRESS_BYTES_MAX)
        self._check("all clients together", self._held_bytes, size_bytes, SAID_BYTES_MAX)
        self._held[address] += size_bytes
        self._held_bytes += size_bytes
        left = size_bytes

        def give_back() -> None:
            nonlocal left
            self._held_bytes -= left
            self._held[address] -= left
            left = 0
            if not self._held[address]:
                del self._held[address]

        return give_back

    def _check(self, who: str, held_bytes: int, size_bytes: int, bytes_max: int) -> None:
        if held_bytes and held_bytes + size_bytes > bytes_max:
            raise NotReady(
                f"what members of groups say waits for their groups, {bytes_max >> 20} MiB of {who}: try again in "
                "a moment"
            )
