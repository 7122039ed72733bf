"""Which header names a record's lane, and which lanes it names."""

from collections.abc import Sequence
from string import whitespace
from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bmq.config.topic_config import LANE_HEADER, validate
from bmq.errors import InvalidConfig
from bmq.naming import lane_choice
from bmq.naming.lane_choice import (
    BAGGAGE_BYTES_MAX,
    BAGGAGE_MEMBERS_MAX,
    CONTENT_BYTES_MAX,
    WRITINGS_MAX,
    LaneChoice,
    TooMuchBaggage,
)


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("x-lane", LaneChoice("x-lane")),
        ("X-Lane", LaneChoice("x-lane")),
        ("baggage", LaneChoice("baggage")),
        ("baggage:lane", LaneChoice("baggage", "lane")),
        ("Baggage:Lane", LaneChoice("baggage", "Lane")),
        ("!#$%&'*+-.^_`|~", LaneChoice("!#$%&'*+-.^_`|~")),
        ("x" * 249, LaneChoice("x" * 249)),
    ],
)
def test_a_header_or_a_member_of_baggage_names_lanes(text: str, choice: LaneChoice) -> None:
    assert LaneChoice.parse(text) == choice
    assert validate({LANE_HEADER: f" {text} "}) == {LANE_HEADER: text}


NO_HEADERS = [
    ":",
    ":lane",
    "x-lane:",
    "x-lane:dev",
    "baggage:",
    "baggage:a b",
    "baggage: lane",
    "baggage:a,b",
    "baggage:a;b",
    "baggage:a=b",
    "baggage:a:b",
    "baggage:ü",
    "x lane",
    "x\tlane",
    "x\nlane",
    "x-läne",
    "x-\N{KELVIN SIGN}",
    "x" * 250,
]


@pytest.mark.parametrize("text", NO_HEADERS)
def test_what_no_record_could_have_is_no_header(text: str) -> None:
    with pytest.raises(InvalidConfig, match="write a header's name"):
        LaneChoice.parse(text)
    with pytest.raises(InvalidConfig, match=f"{LANE_HEADER}: .* names no header: write") as raised:
        validate({LANE_HEADER: text})
    assert "\n" not in str(raised.value)


def test_a_topic_may_say_that_no_header_names_lanes() -> None:
    assert validate({LANE_HEADER: ""}) == validate({LANE_HEADER: "  "}) == {LANE_HEADER: ""}
    with pytest.raises(InvalidConfig):
        LaneChoice.parse("")


@given(st.text(max_size=20) | st.text(max_size=20).map("baggage:{}".format))
def test_a_member_that_is_taken_can_be_named(text: str) -> None:
    try:
        choice = LaneChoice.parse(text)
    except InvalidConfig:
        return
    content = f"{choice.member}=dev" if choice.member else "dev"
    assert choice.names([content.encode()]) == {"dev"}


@pytest.mark.parametrize(
    ("contents", "names"),
    [
        ([], set()),
        ([b"dev"], {"dev"}),
        ([b" dev\t"], {"dev"}),
        ([b"dev", b"dev "], {"dev"}),
        ([b"dev", b"prod"], {"dev", "prod"}),
        ([b"", b"  "], set()),
        ([b"", b"dev"], {"dev"}),
        ([b"d%65v"], {"d%65v"}),
        ([b"a,b"], {"a,b"}),
        ([b"d\xff"], {"d\\xff"}),
        ([b" " * 253 + b"dev"], {"dev"}),
        ([b" " * 253 + b"dev "], {"dev..."}),
        ([b"\xff" * 20_000_000], {"\\xff" * 20 + "..."}),
        ([b"\xff" * 20], {"\\xff" * 20}),
        ([b" \xff" + b"a" * 20], {"\\xff" + "a" * 19 + "..."}),
        ([b"\xff" + b" " * 256], {"\\xff..."}),
        ([b"dev"] * 100, {"dev"}),
        ([b" " * at + b"dev" for at in range(100)], {"dev"}),
        ([b"%d" % at for at in range(100)], {*map(str, range(8)), "..."}),
    ],
)
def test_a_headers_content_is_the_lanes_name(contents: list[bytes], names: set[str]) -> None:
    assert LaneChoice.parse("x-lane").names(contents) == names


@pytest.mark.parametrize(
    ("contents", "names"),
    [
        ([b"lane=dev"], {"dev"}),
        ([b"user=ann,lane=dev,cart=7"], {"dev"}),
        ([b"lane=dev;ttl=1;lane=prod"], {"dev"}),
        ([b"user=ann;lane=prod , lane = dev ; x"], {"dev"}),
        ([b"lane=d%65v"], {"dev"}),
        ([b"lane=%64%65%76%20"], {"dev"}),
        ([b"lane=a%2Cb"], {"a,b"}),
        ([b"lane=%C3%BC"], {"ü"}),
        ([b"lane=%FF"], {"\\xff"}),
        ([b"lane=%zz"], {"%zz"}),
        ([b"lane=a=b"], {"a=b"}),
        ([b"lane=a,lane=b"], {"a", "b"}),
        ([b"lane=a", b"lane=b"], {"a", "b"}),
        ([b"lane=" + b"%20" * 300 + b"dev"], {"..."}),
        ([b"lane=dev" + b"%20" * 253], {"dev"}),
        ([b"lane=dev" + b"%20" * 254], {"dev..."}),
        ([b"lane=" + b"%64" * 300], {"d" * 256 + "..."}),
        ([b"lane=dev"] * 64, {"dev"}),
        ([b"lane=d%65v,lane=dev,lane=de%76"], {"dev"}),
        ([b"lane=d%65v", b",".join(b"lane=%d" % at for at in range(60))], {"dev", *map(str, range(7)), "..."}),
        ([b"lane=a", b"lane=a;p"], {"a"}),
        ([b"lane", b"lane=", b"lane=%20", b"", b",,"], set()),
        ([b"Lane=dev", b"lanes=dev", b"lan%65=dev", b"user=lane=dev"], set()),
        ([b"\xff\x00=,;=,lane=dev"], {"dev"}),
    ],
)
def test_a_member_of_baggage_is_the_lanes_name_without_properties_and_percent_encoding(
    contents: list[bytes], names: set[str]
) -> None:
    assert LaneChoice.parse("baggage:lane").names(contents) == names


@pytest.mark.parametrize(
    ("contents", "told"),
    [
        ([b"," * 64], "has more than 64 members"),
        ([b","] * 33, "has more than 64 members"),
        ([b"," * 20_000_000], "has more than 8,192 bytes"),
        ([b"lane=dev" + b" " * 4_000, b" " * 8_192], "has more than 8,192 bytes"),
    ],
)
def test_baggage_that_nobody_has_to_pass_on_is_not_looked_through(contents: list[bytes], told: str) -> None:
    with pytest.raises(TooMuchBaggage, match=told):
        LaneChoice.parse("baggage:lane").names(contents)
    assert LaneChoice.parse("baggage:lane").names([b"lane=dev" + b"," * 63]) == {"dev"}
    assert LaneChoice.parse("x-lane").names(contents)  # as a content it is a name


def in_plain_words(member: str, contents: Sequence[bytes]) -> set[str]:
    if member:
        parts = [part.partition(b";")[0].partition(b"=") for one in contents for part in one.split(b",")]
        contents = [unquote_to_bytes(value.strip()) for name, _, value in parts if name.strip() == member.encode()]
    names = {one[:CONTENT_BYTES_MAX].strip().decode() + "..." * (len(one) > CONTENT_BYTES_MAX) for one in contents}
    return names - {""}


SAID = st.text(alphabet="laned=,; \t\r\n\v\f%6465.*ü", max_size=40) | st.lists(
    st.sampled_from(
        ["lane", " lane ", "l", "=", "==", ",", ";", "dev", "%64ev", "%20", " " * 250, "%20" * 250, "a" * 254]
    ),
    max_size=8,
).map("".join)


@given(st.lists(SAID, max_size=4), st.sampled_from(["x-lane", "baggage:lane", "baggage:l.*", "baggage:l"]))
def test_names_are_what_plain_words_say(said: list[str], text: str) -> None:
    choice, contents = LaneChoice.parse(text), [one.encode() for one in said]
    try:
        expected = in_plain_words(choice.member, contents)
    except UnicodeDecodeError:
        return
    try:
        found = choice.names(contents)
    except TooMuchBaggage:
        members = sum(one.count(b",") + 1 for one in contents)
        assert choice.member and (sum(map(len, contents)) > BAGGAGE_BYTES_MAX or members > BAGGAGE_MEMBERS_MAX)
        return
    assert found == expected or (len(expected) > WRITINGS_MAX and "..." in found)


@pytest.mark.parametrize(
    ("text", "contents"),
    [
        ("x-lane", [b"%d" % at + b"\xff" * 250 for at in range(10_000)]),
        ("x-lane", [b"\xff" * 256] * 10_000),
        ("x-lane", [b"\xff" * 256 + b"%d" % at for at in range(10_000)]),
        ("baggage:lane", [b",".join(b"lane=%02d" % at + b"%FF" * 39 for at in range(64))]),
        ("baggage:lane", [b"lane=" + b"%ff" * 2_700]),
        ("baggage:lane", [b",".join(b"user%d=" % at + b"%FF" * 39 for at in range(63)) + b",lane=dev"]),
    ],
    ids=["differing", "alike", "long", "members", "member", "others"],
)
def test_few_bytes_are_decoded_whatever_a_record_says(
    text: str, contents: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[int] = []
    name, unquote = lane_choice._name, lane_choice.unquote_to_bytes

    def named(cut: bytes) -> str:
        decoded.append(len(cut))
        return name(cut)

    def unquoted(written: bytes) -> bytes:
        decoded.append(len(written))
        return unquote(written)

    monkeypatch.setattr(lane_choice, "_name", named)
    monkeypatch.setattr(lane_choice, "unquote_to_bytes", unquoted)
    names = LaneChoice.parse(text).names(contents)
    assert len(decoded) <= 2 * WRITINGS_MAX
    assert max(decoded) <= 3 * (CONTENT_BYTES_MAX + 1)
    assert sum(map(len, names)) <= 9 * 90


@given(st.lists(st.binary(max_size=40), max_size=4), st.sampled_from(["x-lane", "baggage:lane"]))
def test_whatever_a_record_says_names_are_neither_blank_nor_begin_or_end_so(contents: list[bytes], text: str) -> None:
    names = LaneChoice.parse(text).names(contents)
    assert all(name and name == name.strip(whitespace) for name in names)
