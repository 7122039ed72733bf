"""Which part of the messages is written. Pure."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """`percent`: of a hundred messages, above 0."""

    percent: float
    by: Literal["key", "random"] = "random"


def is_sampled(rule: Sampling, key: bytes | None, random: Callable[[], float]) -> bool:
    """Whether the message is written. By its key the answer is the same everywhere and always; the hash is not one that
    partitions are chosen by, or all would come to few of them.
    """
    if rule.by == "key" and key is not None:
        return _place(key) * 100 < rule.percent
    return random() * 100 < rule.percent


def _place(key: bytes) -> float:
    """Uniform in [0, 1)."""
    return (int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big") >> 11) / (1 << 53)
