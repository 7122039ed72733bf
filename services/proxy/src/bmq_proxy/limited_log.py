"""Log lines that a peer can cause: at most one per peer and interval, with the number of those left out."""

from collections import OrderedDict
from collections.abc import Callable

PEERS_MAX = 1_000


class LimitedLog:
    """Counts per peer host; forgets the peers not heard of for longest."""

    def __init__(self, write: Callable[[str, str, int], None], *, interval_s: float = 10.0) -> None:
        self._write = write
        self._interval_s = interval_s
        self._peers: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def say(self, now: float, peer: str, reason: str) -> None:
        """`now` in seconds by the loop's clock. Calls `write(peer, reason, left out before)` or counts."""
        last, left_out = self._peers.pop(peer, (float("-inf"), 0))
        if now - last >= self._interval_s:
            self._write(peer, reason, left_out)
            last, left_out = now, 0
        else:
            left_out += 1
        self._peers[peer] = (last, left_out)
        if len(self._peers) > PEERS_MAX:
            self._peers.popitem(last=False)
