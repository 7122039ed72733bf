"""Each rule of channels by itself, against what is obvious and slow."""

import json
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bmq.naming.lane_choice import LaneChoice
from bmq_databus.errors import Unfit
from bmq_databus.messages.forms import NewMessage
from bmq_databus.rules.keys import KeyRule, key_of
from bmq_databus.rules.lanes import Lanes
from bmq_databus.rules.places import NotJson, edited, found_at
from bmq_databus.rules.rates import Ahead, Rate, RateLimit
from bmq_databus.rules.redaction import Redaction, edits_of, redacted
from bmq_databus.rules.sampling import Sampling, is_sampled
from bmq_resources.json_paths import Path, is_within, path_of

SECRET = "4111-secret"
NAMES = st.sampled_from(["a", "b", "customer", "né", "", "x.y"])
STEPS = st.lists(NAMES | st.integers(0, 3), min_size=1, max_size=4).map(tuple)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=8)
    | st.decimals(allow_nan=False, allow_infinity=False, places=30)
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4))


def written(value: Any) -> bytes:
    """With all digits, and blanks that no encoder of ours makes."""

    def said(value: Any) -> str:
        if isinstance(value, dict):
            return "{" + " , ".join(f"{json.dumps(name)}: {said(one)}" for name, one in value.items()) + "}"
        if isinstance(value, list):
            return "[ " + ",".join(map(said, value)) + "]"
        return f"{value:f}" if isinstance(value, Decimal) else json.dumps(value)

    return said(value).encode()


def read(value: bytes) -> Any:
    return json.loads(value, parse_float=Decimal)


def obvious(value: Any, path: Path) -> Any:
    """What is there; KeyError where nothing is."""
    for step in path:
        if not isinstance(value, dict if isinstance(step, str) else list):
            raise KeyError(step)
        if isinstance(step, int) and step >= len(value):
            raise KeyError(step)
        value = value[step]
    return value


@given(VALUES, STEPS)
def test_what_is_at_a_place_is_what_a_walk_finds_there(value: Any, path: Path) -> None:
    found = found_at(written(value), path)
    try:
        there = obvious(value, path)
    except KeyError:
        assert found is None
    else:
        assert found is not None and read(found) == there


@given(VALUES, STEPS, st.none() | st.binary(max_size=4))
def test_a_key_is_what_a_walk_finds_or_the_messages_own(value: Any, path: Path, own: bytes | None) -> None:
    new = NewMessage(key=own, value=written(value))
    key = key_of(KeyRule(field=path, when_missing="keyless"), new)
    try:
        there = obvious(value, path)
    except KeyError:
        there = None
    if there is None:
        assert key == own
    elif isinstance(there, str):
        assert key == there.encode()
    else:
        assert key is not None and read(key) == there


def test_a_key_of_a_header_is_its_last_one_and_a_constant_is_always_there() -> None:
    new = NewMessage(key=None, value=None, headers=(("h", b"1"), ("h", b"2"), ("g", None)))
    assert key_of(KeyRule(header="h"), new) == b"2"
    assert key_of(KeyRule(constant=b"all"), new) == b"all"
    assert key_of(KeyRule(header="g", when_missing="keyless"), new) is None
    with pytest.raises(Unfit, match="no key"):
        key_of(KeyRule(header="g"), new)


@pytest.mark.parametrize("value", [b"no json", b'{"a": nul}', b"", b"\xff", b'{"a":1} x', b"[" * 100_000])
def test_a_value_that_is_no_json_has_no_places(value: bytes) -> None:
    with pytest.raises(NotJson):
        found_at(value, ("a",))
    with pytest.raises(NotJson):
        edited(value, {"a": None})
    assert key_of(KeyRule(field=("a",), when_missing="keyless"), NewMessage(key=None, value=value)) is None


def hidden(value: Any, path: Path) -> Any:
    """The value with the secret at that place, which is made."""
    if not path:
        return SECRET
    step, *rest = path
    if isinstance(step, str):
        inner = value if isinstance(value, dict) else {}
        return {**inner, step: hidden(inner.get(step), tuple(rest))}
    elements = list(value) if isinstance(value, list) else []
    elements += [None] * (step + 1 - len(elements))
    elements[step] = hidden(elements[step], tuple(rest))
    return elements


@given(VALUES, st.lists(STEPS, min_size=1, max_size=3), st.booleans())
def test_what_is_redacted_is_not_in_the_value_and_all_else_is(value: Any, paths: list[Path], removes: bool) -> None:
    paths = [one for at, one in enumerate(paths) if not any(is_within(one, two) for two in paths[:at])]
    paths = [one for one in paths if not any(one != two and is_within(one, two) for two in paths)]
    for path in paths:
        value = hidden(value, path)
    rule = Redaction(remove=tuple(paths)) if removes else Redaction(replace=tuple(paths), text="gone")
    after = redacted(written(value), edits_of(rule))
    assert after is not None and SECRET.encode() not in after
    for path in paths:
        where = obvious_parent(value, path)
        if where is None:
            continue
        if not removes:
            where[path[-1]] = "gone"
        elif isinstance(where, dict):
            where.pop(path[-1])
        else:
            where[path[-1]] = None
    assert read(after) == read(written(value))


def obvious_parent(value: Any, path: Path) -> Any:
    """None where another place made something else of it."""
    try:
        obvious(value, path)
        return obvious(value, path[:-1])
    except KeyError:
        return None


@pytest.mark.parametrize(
    "value",
    [
        b'{"card": {"number": "4111-secret"}, "card": {}}',
        b'{"card": {"number": "4111-secret", "number": 1}}',
        b'{"c\\u0061rd": {"n\\u0075mber": "4111-secret"}}',
        b' {"card" :\n{"number": ["4111-secret"]}}',
    ],
)
def test_what_is_redacted_hides_in_no_second_member_and_behind_no_escape(value: bytes) -> None:
    for rule in (Redaction(replace=(("card", "number"),)), Redaction(remove=(("card", "number"),))):
        assert SECRET.encode() not in (redacted(value, edits_of(rule)) or b"")


def test_numbers_stay_as_they_stand_when_a_value_is_written_anew() -> None:
    value = (
        b'{"id": 12345678901234567890123, "price": 0.10000000000000000000001, "e": 1E400, "card": {"n": 1, "m": -0.0}}'
    )
    after = redacted(value, edits_of(Redaction(replace=(("card", "n"),))))
    assert after == (
        b'{"id":12345678901234567890123,"price":0.10000000000000000000001,"e":1E400,"card":{"n":"[redacted]","m":-0.0}}'
    )


def test_an_element_that_is_removed_leaves_null_and_a_tombstone_stays_one() -> None:
    edits = edits_of(Redaction(remove=(("a", 1),)))
    assert redacted(b'{"a":[1,2,3]}', edits) == b'{"a":[1,null,3]}'
    assert redacted(None, edits) is None
    with pytest.raises(NotJson, match="no JSON, so nothing can be taken out"):
        redacted(b"4111-secret", edits)


@given(st.binary(max_size=16), st.floats(0.1, 100))
def test_a_key_is_sampled_always_or_never_and_in_a_larger_sample_too(key: bytes, percent: float) -> None:
    rule = Sampling(percent=percent, by="key")

    def no_chance() -> float:
        raise AssertionError("chance has no say")

    first = is_sampled(rule, key, no_chance)
    assert first == is_sampled(rule, key, no_chance)
    assert not first or is_sampled(Sampling(percent=min(100, percent * 2), by="key"), key, no_chance)
    assert is_sampled(Sampling(percent=100, by="key"), key, no_chance)


def test_a_sample_has_about_its_part_of_the_keys() -> None:
    sampled = sum(is_sampled(Sampling(percent=10, by="key"), b"key-%d" % one, lambda: 0.0) for one in range(20_000))
    assert 1_800 < sampled < 2_200


def test_chance_decides_where_there_is_no_key() -> None:
    by_key = Sampling(percent=50, by="key")
    assert is_sampled(by_key, None, lambda: 0.4)
    assert not is_sampled(by_key, None, lambda: 0.5)
    assert not is_sampled(Sampling(percent=50), b"key", lambda: 0.7)


WRITES = st.lists(st.tuples(st.floats(0, 2), st.integers(0, 500)), max_size=60)
RATES = st.builds(
    Rate,
    messages_per_second=st.sampled_from([0.0, 0.5, 3.0, 10.0]),
    bytes_per_second=st.sampled_from([0.0, 50.0, 300.0]),
    burst_s=st.sampled_from([0.1, 1.0, 4.0]),
)


@given(RATES, WRITES, st.booleans())
@example(
    Rate(messages_per_second=0.5, bytes_per_second=50.0, burst_s=0.1), [(0.0, 5), (0.0, 5), (0.0, 5), (2.0, 5)], True
)
@example(Rate(bytes_per_second=50.0), [(0.0, 500), (0.0, 500), (2.0, 1)], False)
def test_no_stretch_of_time_has_more_than_the_rate(rate: Rate, writes: list[tuple[float, int]], waits: bool) -> None:
    limit, now_s = RateLimit(rate, now_s=0.0), 0.0
    through: list[tuple[float, int]] = []
    for pause_s, size_bytes in writes:
        now_s += pause_s
        if waits:
            through.append((now_s + limit.reserve(size_bytes, now_s), size_bytes))
        elif not limit.admit(size_bytes, now_s, Ahead()):
            through.append((now_s, size_bytes))
    for first in range(len(through)):
        for last in range(first, len(through)):
            time_s = through[last][0] - through[first][0]
            sizes = [size_bytes for _, size_bytes in through[first : last + 1]]
            if rate.messages_per_second:
                burst = max(1.0, rate.messages_per_second * rate.burst_s)
                assert len(sizes) <= burst + rate.messages_per_second * time_s + 1e-6
            if rate.bytes_per_second:
                burst = rate.bytes_per_second * rate.burst_s
                over = max(0.0, sizes[-1] - burst)
                assert sum(sizes) <= burst + over + rate.bytes_per_second * time_s + 1e-6


@given(RATES, st.lists(st.integers(0, 500), min_size=1, max_size=20))
def test_who_waits_as_long_as_it_is_told_gets_through(rate: Rate, sizes: list[int]) -> None:
    limit, now_s = RateLimit(rate, now_s=0.0), 0.0
    for size_bytes in sizes:
        now_s += limit.admit(size_bytes, now_s, Ahead())
        limit.admit(size_bytes, now_s + 1e-6, Ahead())
    assert limit.admit(1, now_s + 10_000, Ahead()) == 0.0


def test_behind_a_message_that_was_refused_nothing_of_its_request_gets_through() -> None:
    limit, ahead = RateLimit(Rate(bytes_per_second=100.0), now_s=0.0), Ahead()
    assert limit.admit(60, 0.0, ahead) == 0.0
    assert limit.admit(90, 0.0, ahead) == pytest.approx(0.5)
    assert limit.admit(1, 0.0, ahead) == pytest.approx(0.51)
    assert limit.admit(1, 0.0, Ahead()) == 0.0


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("$.a.b", ("a", "b")),
        ("$['first name'][0]", ("first name", 0)),
        ('$["x"].né', ("x", "né")),
        ("$['']", ("",)),
    ],
)
def test_a_path_names_its_steps(text: str, path: Path) -> None:
    assert path_of(text) == path


@pytest.mark.parametrize(
    "text",
    ["", "a", "$", "$.", "$..a", "$[*]", "$.a[*]", "$[-1]", "$[01]", "$['a\\'']", "$[1:2]", "$.a ", "$[1000001]"],
)
def test_what_is_no_path_is_told(text: str) -> None:
    with pytest.raises(ValueError, match=r"path|step|index"):
        path_of(text)


BY_HEADER, BY_BAGGAGE = LaneChoice("x-lane"), LaneChoice("baggage", "lane")


@pytest.mark.parametrize(
    ("rule", "own", "request_", "lane"),
    [
        (BY_HEADER, {}, {}, ""),
        (BY_HEADER, {}, {"x-lane": b" dev "}, "dev"),
        (BY_HEADER, {"X-Lane": b"own"}, {"x-lane": b"dev"}, "own"),
        (BY_HEADER, {"x-lane": None}, {}, ""),
        (BY_BAGGAGE, {}, {"baggage": b"user=1, lane = dev;ttl=5 ,x=y"}, "dev"),
        (BY_BAGGAGE, {}, {"baggage": b"lane=d%65v"}, "dev"),
        (BY_BAGGAGE, {"baggage": b"lane=own"}, {"baggage": b"lane=dev"}, "own"),
        (BY_BAGGAGE, {}, {"baggage": b"lanes=dev", "lane": b"dev"}, ""),
        (BY_BAGGAGE, {}, {"baggage": b";;,=,lane=dev,lane=dev"}, "dev"),
    ],
)
def test_a_lane_is_what_the_message_names_or_else_its_request(
    rule: LaneChoice, own: dict[str, bytes | None], request_: dict[str, bytes], lane: str
) -> None:
    new = NewMessage(key=None, value=None, headers=tuple(own.items()))
    assert Lanes([(name.encode(), value) for name, value in request_.items()]).of(rule, new) == lane


@pytest.mark.parametrize(
    "said", [b"Dev", b"dev,prod", b"a,lane=b", b"-", b"x" * 33, b"\xff", b"d\x00v", b"dev lane=base"]
)
def test_what_is_no_lanes_name_is_refused_and_not_taken_for_the_base(said: bytes) -> None:
    new = NewMessage(key=None, value=None)
    with pytest.raises(Unfit, match="is no lane's name"):
        Lanes([(b"x-lane", said)]).of(BY_HEADER, new)


def test_several_lanes_are_refused() -> None:
    with pytest.raises(Unfit, match="several lanes"):
        Lanes([(b"baggage", b"lane=a"), (b"baggage", b"lane=b")]).of(BY_BAGGAGE, NewMessage(key=None, value=None))


def test_what_a_request_says_for_all_its_messages_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[list[bytes]] = []
    names = LaneChoice.names

    def counting(self: LaneChoice, contents: Iterable[bytes]) -> set[str]:
        read.append(list(contents))
        return names(self, read[-1])

    monkeypatch.setattr(LaneChoice, "names", counting)
    lanes, new = Lanes([(b"baggage", b"lane=dev")]), NewMessage(key=None, value=None)
    own = NewMessage(key=None, value=None, headers=(("baggage", b"lane=own"),))
    assert [lanes.of(BY_BAGGAGE, one) for one in (new, new, own, own, new)] == ["dev", "dev", "own", "own", "dev"]
    assert len(read) == 3
    wrong = Lanes([(b"x-lane", b"NONE")])
    for _ in range(3):
        with pytest.raises(Unfit, match="is no lane's name"):
            wrong.of(BY_HEADER, new)
    assert len(read) == 4


@pytest.mark.parametrize(
    ("contents", "why"),
    [
        ([b"lane=dev,a=" + b"x" * 8_192], "8192 are the most"),
        ([b"lane=dev", b"a=" + b"x" * 8_185], "8192 are the most"),
        ([b"lane=dev" + b"," * 64], "has 65 members: 64 are the most"),
        ([b"a=b"] * 65, "has 65 members"),
    ],
)
def test_no_more_of_baggage_is_read_than_everybody_carries_on(contents: list[bytes], why: str) -> None:
    new = NewMessage(key=None, value=None)
    with pytest.raises(Unfit, match=why):
        Lanes([(b"baggage", one) for one in contents]).of(BY_BAGGAGE, new)
    own = NewMessage(key=None, value=None, headers=tuple(("baggage", one) for one in contents))
    with pytest.raises(Unfit, match=why):
        Lanes([(b"baggage", b"lane=dev")]).of(BY_BAGGAGE, own)
    assert Lanes([(b"baggage", one) for one in contents]).of(BY_HEADER, new) == ""
    named = NewMessage(key=None, value=None, headers=(("baggage", b"lane=own"),))
    assert Lanes([(b"baggage", one) for one in contents]).of(BY_BAGGAGE, named) == "own", "the request's is not asked"


def test_a_lane_of_many_bytes_is_not_decoded() -> None:
    with pytest.raises(Unfit, match="is no lane's name") as refused:
        Lanes().of(BY_HEADER, NewMessage(key=None, value=None, headers=(("x-lane", b"\xff" * 6_000_000),)))
    assert len(str(refused.value)) < 500
