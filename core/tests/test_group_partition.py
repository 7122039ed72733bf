"""Where a group lives, by Kafka's own formula."""

import pytest

from bmq.naming.group_partition import NAME_CHARS_MAX, java_hash, partition_of_group


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("abc", 96354),
        ("hello", 99162322),
        ("console-consumer", -648006740),
        ("polygenelubricants", -(2**31)),
        ("ü", 252),
        ("😀", 1772899),
    ],
)
def test_the_hash_is_javas(text: str, expected: int) -> None:
    assert java_hash(text) == expected


def test_the_smallest_hash_counts_as_zero() -> None:
    assert partition_of_group("polygenelubricants", 50) == 0
    assert partition_of_group("hello", 50) == 22


def test_of_a_name_that_no_group_has_its_beginning_is_enough() -> None:
    longest = "g" * NAME_CHARS_MAX
    assert partition_of_group(longest[:-1], 1_000_003) != partition_of_group(longest, 1_000_003)
    assert partition_of_group(longest, 1_000_003) == partition_of_group(longest + "h" * 1_000_000, 1_000_003)
