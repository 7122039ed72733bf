"""Who waits for channels to change: thousands of sidecars, each answered from this node's own image.

A watcher says which version it has. It is answered at once with what changed since, or with all channels where that is
too long ago or another cluster's; else it waits. What is answered is encoded once for each version that is asked from,
and shared by all who ask. A node that is behind what a watcher has already waits with it: nobody goes back.
"""

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Hashable
from typing import Any, Final

import msgspec

from bmq.fairness.crowd import Crowd
from bmq.fairness.turns import Turns
from bmq.metadata.channels import changed_names, channel, channel_names, revision
from bmq.metadata.image import Image
from bmq.roles.controller import Metadata

WATCH_PATH: Final = "/v1/watch/channels"
WAIT_S_MAX: Final = 60.0
GATHERED_S: Final = 0.2
"""Changes that come within it of the answer before are answered together…"""
ANSWER_S: Final = 0.0002
"""…or, where many wait, within so long for each of them: about what it takes to answer them."""
CHANGES_KEPT: Final = 10_000
"""How many changes are known one by one; who has an older version gets all channels."""
CHANGED_BYTES_MAX: Final = 1 << 20
"""More than that is not told apart by when it changed: who missed it gets all channels, in the one answer that all who
need them share."""
NEAR: Final = 64
"""Who missed no more changes than this is told them. What is told of others has a bound in bytes and looks for each
version of the metadata, whatever versions are asked from: then they share the answer with all channels."""
NEAR_TIMES: Final = 4
"""What is told of near ones together has so many times the bound of one."""
LOOK_BYTES: Final = 200
"""As how many bytes a look at a change counts."""
TURN_BYTES: Final = 64 << 10
"""Answers above it are sent by turns of addresses, one in each turn of the event loop; so is what has to be encoded."""


class ChannelWatch:
    """One node's. Follows the metadata from its making on."""

    def __init__(self, metadata: Metadata, turns: Turns | None = None) -> None:
        """`turns` are those of all that is long at this node's address."""
        self._turns = turns if turns is not None else Turns()
        self._image = metadata.image
        self._known_from = revision(self._image)
        """`_changes` has each name that changed above it."""
        self._changes: deque[tuple[int, frozenset[str]]] = deque()
        self._encoded: dict[int | None, bytes] = {}
        """By the version that is asked from; None: all channels."""
        self._left_bytes = CHANGED_BYTES_MAX
        """What may still be told to those who missed many changes, of this version."""
        self._left_near_bytes = NEAR_TIMES * CHANGED_BYTES_MAX
        """And to those who missed few, beside what is little."""
        self._crowd = Crowd()
        self._next_s = float("-inf")
        """Before it nobody is woken again."""
        self._waking: asyncio.TimerHandle | None = None
        self._has_ended = False
        self._unsubscribe = metadata.subscribe(self._changed)

    def __len__(self) -> int:
        """How many wait."""
        return len(self._crowd)

    async def changes(self, after: str, *, wait_s: float, party: Hashable = None) -> bytes:
        """What changed since the version `after` ("": nothing is known), as JSON of ChannelChanges; with nothing in it
        after `wait_s` without a change. `party`: who asks, an address.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + wait_s
        while not self._has_ended and self._has_nothing(after) and loop.time() < until_s:
            try:
                async with asyncio.timeout_at(until_s):
                    await self._crowd.wait()
            except TimeoutError:
                break
        if not self._has_all(after) and self._is_long(self._since(after)):
            await self._turns.turn(party=party)
        if self._has_all(after):  # or has more: its own version, so that it never goes back
            return _encoded(after, [], [], complete=False)
        return self._answer(self._since(after))

    def end(self) -> None:
        """Everybody is answered now, and nobody waits from now on."""
        self._has_ended = True
        self._unsubscribe()
        if self._waking is not None:
            self._waking.cancel()
        self._crowd.wake()

    def _has_all(self, after: str) -> bool:
        return self._since(after) == revision(self._image)

    def _has_nothing(self, after: str) -> bool:
        """Whether the watcher has everything, or more of it is being gathered."""
        since = self._since(after)
        return since == revision(self._image) or (since is not None and self._waking is not None)

    def _since(self, after: str) -> int | None:
        """The revision that the watcher has; None: it needs all. That of this node, where it has a later one."""
        place, _, number = after.rpartition("/")
        if place != _place(self._image) or not number.isascii() or not number.isdigit() or len(number) > 18:
            return None
        since = min(int(number), revision(self._image))
        return since if since >= self._known_from else None

    def _is_long(self, since: int | None) -> bool:
        """Whether its answer takes long to be encoded, or sent."""
        if (known := self._encoded.get(self._place_of(since))) is not None:
            return len(known) > TURN_BYTES
        if since is None:
            return True
        names = 0
        for number, changed in reversed(self._changes):
            names += len(changed)
            if number <= since or names > NEAR:
                return number > since
        return False

    def _answer(self, since: int | None) -> bytes:
        at = self._place_of(since)
        found = self._encoded.get(at)
        if found is None:
            found = self._all() if at is None else self._told_apart(at)
            self._encoded[at] = found
        return found

    def _place_of(self, since: int | None) -> int | None:
        """The newest change that who has that version knows, or what is known from: many versions have one."""
        if since is None:
            return None
        at = bisect_right(self._changes, since, key=_number)
        return self._changes[at - 1][0] if at else self._known_from

    def _all(self) -> bytes:
        return encode_changes(self._image, frozenset(channel_names(self._image)), complete=True)

    def _told_apart(self, since: int) -> bytes:
        """What changed since then; all channels where that is much."""
        names: set[str] = set()
        left_bytes, looks = CHANGED_BYTES_MAX, 0
        for number, changed in reversed(self._changes):
            if number <= since:
                break
            looks += 1
            if looks == NEAR + 1:
                left_bytes = min(left_bytes, self._left_bytes)
            left_bytes -= LOOK_BYTES + sum(map(self._bytes_of, changed - names))
            names |= changed
            if left_bytes < 0:
                break
        if looks > NEAR:
            self._left_bytes = max(0, left_bytes)
        elif (told_bytes := CHANGED_BYTES_MAX - left_bytes) > TURN_BYTES and left_bytes >= 0:
            left_bytes = self._left_near_bytes = self._left_near_bytes - told_bytes
        return self._answer(None) if left_bytes < 0 else encode_changes(self._image, frozenset(names), complete=False)

    def _bytes_of(self, name: str) -> int:
        """What it is called and says."""
        found = channel(self._image, name)
        return len(name) + (0 if found is None else len(found.spec))

    def _changed(self, old: Image, new: Image) -> None:
        names = changed_names(self._image, new)
        if _place(self._image) != _place(new):
            self._known_from = revision(new)
            self._changes.clear()
        self._image = new
        if not names:
            return
        self._encoded.clear()
        self._left_bytes, self._left_near_bytes = CHANGED_BYTES_MAX, NEAR_TIMES * CHANGED_BYTES_MAX
        self._changes.append((revision(new), names))
        while len(self._changes) > CHANGES_KEPT:
            self._known_from, _ = self._changes.popleft()
        self._wake_soon()

    def _wake_soon(self) -> None:
        if self._waking is None:
            loop = asyncio.get_running_loop()
            self._waking = loop.call_at(max(loop.time(), self._next_s), self._wake)

    def _wake(self) -> None:
        self._waking = None
        self._next_s = asyncio.get_running_loop().time() + max(GATHERED_S, len(self._crowd) * ANSWER_S)
        self._crowd.wake()


def _number(change: tuple[int, frozenset[str]]) -> int:
    return change[0]


def encode_changes(image: Image, names: frozenset[str], *, complete: bool) -> bytes:
    """These channels as they are now, as JSON of ChannelChanges."""
    found = {name: channel(image, name) for name in sorted(names)}
    there = [
        {"name": name, "spec": msgspec.Raw(one.spec.encode()), "created_ms": one.created_ms}
        for name, one in found.items()
        if one is not None
    ]
    deleted = [name for name, one in found.items() if one is None]
    return _encoded(f"{_place(image)}/{revision(image)}", there, deleted, complete=complete)


def _encoded(version: str, channels: list[dict[str, Any]], deleted: list[str], *, complete: bool) -> bytes:
    return msgspec.json.encode({"version": version, "complete": complete, "channels": channels, "deleted": deleted})


def _place(image: Image) -> str:
    """Which cluster it is, and which copy of its store: revisions of two have nothing to do with each other."""
    return f"{image.cluster_id}/{image.copy}"
