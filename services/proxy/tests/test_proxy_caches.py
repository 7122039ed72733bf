"""Caches that are bounded together lose the one that was used longest ago."""

import pytest

from bmq_proxy import caches
from bmq_proxy.caches import CachesTogether


class Kept:
    def __init__(self, held_bytes: int) -> None:
        self.held_bytes = held_bytes

    def clear(self) -> None:
        self.held_bytes = 0


def test_a_thousand_caches_hold_no_more_than_all_may_and_those_in_use_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "TOGETHER_BYTES", 1_000)
    together, used = CachesTogether(), Kept(100)
    others = [Kept(100) for _ in range(1_000)]
    for other in others:
        together.used(other)
        together.used(used)
        assert together.held_bytes <= 1_000
    assert used.held_bytes == 100
    assert [number for number, other in enumerate(others) if other.held_bytes] == list(range(991, 1_000))


def test_a_cache_that_nobody_has_any_more_counts_no_longer() -> None:
    together = CachesTogether()
    caches = [Kept(100) for _ in range(10)]
    for cache in caches:
        together.used(cache)
    caches.clear()
    del cache
    assert (together.held_bytes, len(together._known)) == (0, 0)


def test_what_a_cache_let_go_of_itself_counts_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "TOGETHER_BYTES", 1_000)
    together, one, other = CachesTogether(), Kept(900), Kept(900)
    together.used(one)
    one.held_bytes = 10
    together.used(one)
    assert together.held_bytes == 10
    together.used(other)
    assert (one.held_bytes, other.held_bytes, together.held_bytes) == (10, 900, 910)
    other.held_bytes = 2_000
    together.used(other)
    assert (one.held_bytes, other.held_bytes, together.held_bytes) == (0, 0, 0)
