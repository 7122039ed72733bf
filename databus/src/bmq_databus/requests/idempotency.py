"""Requests that come again (draft-ietf-httpapi-idempotency-key-header): the same key has the same answer for a while,
and nothing is written again.

Answers live in memory; those of a channel that accepts are on its disk, too, with what was accepted, and are read from
there when its first request with a key comes. A channel has so many of so many bytes, and so have all together; the
oldest give way to new ones before their time, those of the channel that has the most first.
"""

import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from bmq_databus import metrics
from bmq_databus.channels.channel import Channel
from bmq_databus.errors import DatabusError
from bmq_databus.spool.frames import Once
from bmq_databus.spool.keys import kept_bytes

HEADER: Final = "idempotency-key"
KEY_CHARS_MAX: Final = 255
KEYS_MAX: Final = 100_000
BYTES_MAX: Final = 16 << 20
"""What one channel's keys and answers take…"""
ALL_BYTES_MAX: Final = 48 << 20
"""…and those of all."""
SPARE: Final = 16
"""Such a part of it is free again when all have been looked through for what may go."""
_TOPICS: Final = "*"
_QUOTED: Final = re.compile(r'"((?:[\x20-\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"')
_BARE: Final = re.compile(r"[\x21\x23-\x2b\x2d-\x7e]+")


class BadKey(DatabusError):
    """The header is no key."""


class KeyReused(DatabusError):
    """The key belongs to another request."""


class KeyUnderWay(DatabusError):
    """The first request of the key has no answer yet."""


class Answer(NamedTuple):
    """As it was given."""

    status: int
    body: bytes


class _Kept(NamedTuple):
    fingerprint: bytes
    answer: Answer
    until_s: float
    size_bytes: int


class Claim:
    """A request that is the first of its key. Without `keep` it may come again as if it had not been."""

    def __init__(self) -> None:
        self.answer: Answer | None = None

    def keep(self, answer: Answer) -> None:
        """Whoever comes again has it."""
        self.answer = answer


class Idempotency:
    """Answers of all channels."""

    def __init__(
        self,
        now_s: Callable[[], float],
        *,
        keys_max: int = KEYS_MAX,
        bytes_max: int = BYTES_MAX,
        all_bytes_max: int = ALL_BYTES_MAX,
    ) -> None:
        """`now_s`: monotonic. The first two bounds are for each channel."""
        self._now_s = now_s
        self._keys_max = keys_max
        self._bytes_max = bytes_max
        self._all_bytes_max = all_bytes_max
        self._all_bytes = 0
        self._of: dict[str, _OfChannel] = {}

    def remember(self, channel: Channel, keys: Iterable[Once], *, now_ms: int) -> None:
        """Keys of an earlier process, the oldest first. What is known already stays as it is."""
        known = self._place(channel)
        for one in keys:
            left_s = min((one.until_ms - now_ms) / 1000, channel.idempotency_window_s)
            if one.key not in known.answers and one.key not in known.under_way:
                self._add(known, one.key, one.fingerprint, Answer(one.status, one.body), self._now_s() + left_s)
        self._forget(known)

    def kept(self, channel: Channel, key: str, fingerprint: bytes) -> Answer | None:
        """The answer that was given. Raises KeyReused, KeyUnderWay."""
        known, at = self._place(channel), _at(channel, key)
        self._forget(known)
        if (under_way := known.under_way.get(at)) is not None:
            _check(under_way, fingerprint, key)
            raise KeyUnderWay(f"the first request with {HEADER} {key!r} is not answered yet: try again in a moment")
        if (found := known.answers.get(at)) is None:
            return None
        _check(found.fingerprint, fingerprint, key)
        metrics.ANSWERED_AGAIN.labels(channel.name).inc()
        return found.answer

    @contextmanager
    def first(self, channel: Channel, key: str, fingerprint: bytes) -> Iterator[Claim]:
        """While a request is under way for whose key there is no answer: see `kept`."""
        known, at = self._place(channel), _at(channel, key)
        known.under_way[at] = fingerprint
        claim = Claim()
        try:
            yield claim
        finally:
            del known.under_way[at]
            if claim.answer is not None:
                self._add(known, at, fingerprint, claim.answer, self._now_s() + channel.idempotency_window_s)
                self._forget(known)

    def _place(self, channel: Channel) -> "_OfChannel":
        """Its keys'. Topics that are written by their names share one."""
        name = channel.name if channel.is_declared else _TOPICS
        if (known := self._of.get(name)) is None:
            known = self._of[name] = _OfChannel(name)
        return known

    def _add(self, known: "_OfChannel", key: str, fingerprint: bytes, answer: Answer, until_s: float) -> None:
        """One that is not there."""
        size_bytes = kept_bytes(key, answer.body)
        known.answers[key] = _Kept(fingerprint, answer, until_s, size_bytes)
        known.size_bytes += size_bytes
        self._all_bytes += size_bytes

    def _forget(self, known: "_OfChannel") -> None:
        """What is over, and what is too much."""
        now_s = self._now_s()
        while known.answers:
            if next(iter(known.answers.values())).until_s > now_s:
                if len(known.answers) <= self._keys_max and known.size_bytes <= self._bytes_max:
                    break
                metrics.KEYS_FORGOTTEN.labels(known.name).inc()
            self._drop_oldest(known)
        if self._all_bytes <= self._all_bytes_max:
            return
        for one in self._of.values():
            while one.answers and next(iter(one.answers.values())).until_s <= now_s:
                self._drop_oldest(one)
        least_bytes = self._all_bytes_max - self._all_bytes_max // SPARE
        while self._all_bytes > least_bytes:
            most = max(self._of.values(), key=_size)
            while self._all_bytes > least_bytes and most.answers:
                metrics.KEYS_FORGOTTEN.labels(most.name).inc()
                self._drop_oldest(most)

    def _drop_oldest(self, known: "_OfChannel") -> None:
        _, oldest = known.answers.popitem(last=False)
        known.size_bytes -= oldest.size_bytes
        self._all_bytes -= oldest.size_bytes


class _OfChannel:
    def __init__(self, name: str) -> None:
        self.name = name
        self.answers: OrderedDict[str, _Kept] = OrderedDict()
        """The oldest first."""
        self.under_way: dict[str, bytes] = {}
        self.size_bytes = 0


def _size(known: _OfChannel) -> int:
    return known.size_bytes


def key_of(values: Sequence[str]) -> str | None:
    """The key of a request's headers of that name: a string of RFC 8941, or the same without quotes. Raises BadKey."""
    if not values:
        return None
    text = values[0].strip()
    if len(values) == 1 and len(text) <= 2 * KEY_CHARS_MAX:
        quoted = _QUOTED.fullmatch(text)
        key = re.sub(r"\\(.)", r"\1", quoted[1]) if quoted is not None else text if _BARE.fullmatch(text) else ""
        if 0 < len(key) <= KEY_CHARS_MAX:
            return key
    raise BadKey(f'{HEADER} is one string of 1 to {KEY_CHARS_MAX} printable ASCII characters, as "8e03978e-40d5"')


def fingerprint_of(*parts: bytes) -> bytes:
    """Equal for equal requests alone."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.digest()


def _at(channel: Channel, key: str) -> str:
    return key if channel.is_declared else f"{channel.name}/{key}"


def _check(known: bytes, fingerprint: bytes, key: str) -> None:
    if known != fingerprint:
        raise KeyReused(f"{HEADER} {key!r} came with another request before: take a new key for this one")
