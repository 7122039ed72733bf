"""Keys that end in a number: entries of flat logs, objects of streams. Leading zeros make keys order as their numbers
do.
"""

from typing import Final

from bmq.values import StreamId

NUMBER_DIGITS: Final = 20
NUMBER_MAX: Final = 2**63 - 1


def numbered_key(prefix: str, number: int) -> str:
    """`prefix` (with its final slash) and the number."""
    assert prefix.endswith("/"), prefix
    assert 0 <= number <= NUMBER_MAX, f"{prefix}: {number}"
    return f"{prefix}{number:0{NUMBER_DIGITS}d}"


def number_of(prefix: str, key: str) -> int | None:
    """The number of a key of `numbered_key`; None where the key is none."""
    digits = key[len(prefix) :]
    if not key.startswith(prefix) or len(digits) != NUMBER_DIGITS or not (digits.isascii() and digits.isdigit()):
        return None
    number = int(digits)
    return number if number <= NUMBER_MAX else None


def just_before(prefix: str, number: int) -> str:
    """The `after` of a listing that begins with `number`."""
    return numbered_key(prefix, number - 1) if number > 0 else ""


def wal_key(stream: StreamId, number: int) -> str:
    """The object `number` of a stream."""
    return numbered_key(stream.prefix, number)
