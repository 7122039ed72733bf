"""Names of what lanes have: in and out again is the same, and nothing of the base is ever in a lane."""

import string
from fnmatch import fnmatchcase
from itertools import product
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bmq.errors import InvalidRequest, InvalidTopicName
from bmq.naming.lanes import (
    BASE,
    LANE_NAME_PATTERN,
    check_lane_name,
    id_end,
    lane_group,
    lane_of,
    lane_of_client,
    matches,
    name_in_lane,
    overlay_id,
    overlay_name,
    stored_group,
)
from bmq.naming.names import check_topic_name

lanes = st.from_regex(LANE_NAME_PATTERN, fullmatch=True)
topics = st.text(alphabet=string.ascii_letters + string.digits + "._-", min_size=1, max_size=249)
numbers = st.integers(min_value=1, max_value=10**12)


@given(lane=lanes, topic=topics)
def test_a_lanes_topic_comes_out_as_it_went_in(lane: str, topic: str) -> None:
    check_lane_name(lane)
    stored = overlay_name(lane, topic)
    assert (lane_of(stored), name_in_lane(stored)) == (lane, topic)


@given(lane=lanes, topic=topics)
def test_no_client_can_name_a_lanes_topic_and_no_topic_of_the_base_is_in_a_lane(lane: str, topic: str) -> None:
    with pytest.raises(InvalidTopicName):
        check_topic_name(overlay_name(lane, topic))
    assert (overlay_name(BASE, topic), lane_of(topic), name_in_lane(topic)) == (topic, BASE, topic)


@given(lane=lanes, number=numbers, group=st.text(max_size=60))
def test_a_lanes_group_comes_out_as_it_went_in(lane: str, number: int, group: str) -> None:
    found = lane_group(stored_group(lane, number, group))
    assert found is not None
    assert tuple(found) == (lane, number, group)


@given(group=st.text(max_size=40), lane=lanes, other=lanes, number=numbers, another=numbers)
def test_a_group_belongs_to_one_lane_or_to_the_base(
    group: str, lane: str, other: str, number: int, another: int
) -> None:
    if lane_group(group) is None:
        assert group != stored_group(lane, number, group)
    assert (stored_group(lane, number, group) == stored_group(other, another, group)) is (
        (lane, number) == (other, another)
    )


@pytest.mark.parametrize(
    "group",
    ["orders", "", ":", ":dev", "dev:orders", "::dev#7:g", ":Dev#7:g", ":dev#:g", ":dev#7", "x:dev#7:g", "lane=dev"],
)
def test_groups_that_look_a_little_like_a_lanes_are_the_bases(group: str) -> None:
    assert lane_group(group) is None


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a_b", "a.b", "a:b", "a#b", "a" * 33, "ä", "a b", "a\n"])
def test_a_lanes_name_is_a_dns_label_of_at_most_32_characters(name: str) -> None:
    with pytest.raises(InvalidRequest):
        check_lane_name(name)


@pytest.mark.parametrize(
    ("client_id", "lane"),
    [
        ("", None),
        ("consumer-1", None),
        ("lane=dev", "dev"),
        ("app,lane=dev,bmq_az=a", "dev"),
        ("app lane=dev", "dev"),
        ("bmq_az=a;lane=dev", "dev"),
        ("airplane=dev", None),
        ("biplane=dev,lane=x", "x"),
        ("app-lane=dev", "dev"),
        ("app.lane=dev", "dev"),
        ("LANE=dev", "dev"),
        ("lane = dev", "dev"),
        ("my_lane=dev-0", "dev-0"),
        ("lane=dev,app-0", "dev"),
        ("lane=", ""),
        ("lane=Not/here", "Not"),
    ],
)
def test_a_client_says_its_lane_in_its_client_id(client_id: str, lane: str | None) -> None:
    assert lane_of_client(client_id) == lane


@pytest.mark.parametrize(
    ("topic", "patterns", "found"),
    [
        ("orders", ("*",), True),
        ("orders", ("ord*",), True),
        ("orders", ("*.eu", "orders"), True),
        ("orders", ("order",), False),
        ("orders", ("order?",), False),
        ("orders", ("[o]rders",), False),
        ("orders", (), False),
        ("a.b", ("a*b",), True),
    ],
)
def test_only_the_star_stands_for_other_characters(topic: str, patterns: tuple[str, ...], found: bool) -> None:
    assert matches(topic, patterns) is found


def test_patterns_cover_what_the_standard_librarys_say_of_one_star() -> None:
    pieces = ("", "a", "b", "ab", "*", "**", "a*", "*b", "a*b", "*a*", "a*a", "ab*ab", "*ab*b*", "b*a*b")
    names = ["".join(name) for length in range(6) for name in product("ab", repeat=length)]
    for glob in {one + other for one, other in product(pieces, repeat=2)}:
        for name in names:
            assert matches(name, (glob,)) is fnmatchcase(name, glob), (name, glob)
    assert all(matches(name, pieces) is any(fnmatchcase(name, glob) for glob in pieces) for name in names)


def test_an_id_of_a_lanes_topic_ends_as_the_bases_and_is_given_once() -> None:
    base, other = (UUID(int=number << 70 | number) for number in (1, 2))
    ids = [
        overlay_id("c", number, topic, epoch, base_id=base_id)
        for number, topic, epoch, base_id in product((1, 2), ("orders", "payments"), (0, 1), (base, other, None))
    ]
    assert len(set(ids)) == len(ids)
    assert {found.version for found in ids} == {5}
    assert id_end(overlay_id("c", 1, "orders", 0, base_id=base)) == id_end(base) != id_end(other)
