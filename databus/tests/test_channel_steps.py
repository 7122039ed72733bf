"""What becomes of a message by all rules of its channel."""

import time
from collections.abc import Callable
from pathlib import Path as File
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bmq.errors import ConfigurationError
from bmq_databus.channels.channel import Channel
from bmq_databus.channels.files import channels_of
from bmq_databus.channels.steps import Decision, Moment, Refused, SampledOut, Steps, StepsOfChannels, Write
from bmq_databus.messages.forms import NewMessage
from bmq_databus.producing.outcomes import failed
from bmq_databus.rules.keys import KeyRule
from bmq_databus.rules.rates import Ahead, Rate
from bmq_databus.rules.redaction import Redaction
from bmq_databus.rules.sampling import Sampling
from bmq_resources.value_schemas import BadSchema, JsonSchema

NOW = Moment(now_s=100.0, now_ms=1_700_000_000_000)
ORDER = NewMessage(key=None, value=b'{"customer": {"id": "c1"}, "card": {"number": 4111}}')


def channel(**rules: Any) -> Channel:
    return Channel(name="orders", topic="orders-raw", **rules)


def decided(one: Channel, new: NewMessage = ORDER, *, random: Callable[[], float] = lambda: 0.0) -> Decision:
    return Steps(one, random=random, now_s=NOW.now_s).decide(new, NOW, ahead=Ahead())


def refused(decision: Decision) -> dict[str, Any]:
    assert isinstance(decision, Refused)
    return failed(decision.error)


@given(st.none() | st.binary(max_size=8), st.none() | st.binary(max_size=8), st.integers(-1, 5), st.integers(-1, 5))
def test_a_channel_without_rules_writes_what_it_got(
    key: bytes | None, value: bytes | None, partition: int, timestamp_ms: int
) -> None:
    new = NewMessage(key=key, value=value, partition=partition, timestamp_ms=timestamp_ms)
    decision = decided(channel(), new)
    assert isinstance(decision, Write) and not decision.after_s
    assert decision.message == channel().message(new, now_ms=NOW.now_ms)


def test_all_rules_together_make_one_message() -> None:
    rules = channel(
        key=KeyRule(field=("customer", "id")),
        redaction=Redaction(replace=(("card", "number"),)),
        sampling=Sampling(percent=100),
        rate=Rate(messages_per_second=1),
    )
    decision = decided(rules, NewMessage(key=b"mine", value=ORDER.value, partition=3))
    assert isinstance(decision, Write)
    assert (decision.message.key, decision.message.partition) == (b"c1", 3)
    assert decision.message.value == b'{"customer":{"id": "c1"},"card":{"number":"[redacted]"}}'


def test_what_a_channel_does_not_take_is_told_with_its_status() -> None:
    assert refused(decided(channel(enabled=False)))["status"] == 403
    keyless = refused(decided(channel(key=KeyRule(field=("no",), said="$.no"))))
    assert keyless["status"] == 422 and "$.no" in keyless["error"]
    no_json = refused(decided(channel(redaction=Redaction(remove=(("a",),))), NewMessage(key=None, value=b"no 4111")))
    assert no_json["status"] == 422 and "4111" not in no_json["error"]


def test_what_is_beyond_the_rate_is_refused_and_told_when_it_is_not() -> None:
    steps, ahead = Steps(channel(rate=Rate(messages_per_second=0.5)), random=lambda: 0.0, now_s=NOW.now_s), Ahead()
    assert isinstance(steps.decide(ORDER, NOW, ahead=ahead), Write)
    assert [refused(steps.decide(ORDER, NOW, ahead=ahead))["retryAfter"] for _ in range(2)] == [2, 4]
    later = steps.decide(ORDER, NOW, ahead=Ahead(), waits=True)
    assert isinstance(later, Write) and later.after_s == pytest.approx(2.0)


def test_what_is_sampled_out_or_refused_takes_nothing_of_the_rate() -> None:
    rules = channel(
        key=KeyRule(field=("customer", "id"), said="$.customer.id"),
        sampling=Sampling(percent=50),
        rate=Rate(messages_per_second=1),
    )
    chances = iter([0.9, 0.1])
    steps = Steps(rules, random=lambda: next(chances), now_s=NOW.now_s)
    assert isinstance(steps.decide(NewMessage(key=None, value=None), NOW, ahead=Ahead()), Refused)
    assert isinstance(steps.decide(ORDER, NOW, ahead=Ahead()), SampledOut)
    assert isinstance(steps.decide(ORDER, NOW, ahead=Ahead()), Write)


def test_a_channel_that_changes_goes_on_with_its_rate() -> None:
    known = StepsOfChannels({}, random=lambda: 0.0, now_s=lambda: NOW.now_s)
    before = channel(rate=Rate(messages_per_second=1))
    after = channel(rate=Rate(messages_per_second=1), key=KeyRule(constant=b"k"))
    assert isinstance(known.of(before).decide(ORDER, NOW, ahead=Ahead()), Write)
    assert known.of(before) is known.of(before)
    assert isinstance(known.of(after).decide(ORDER, NOW, ahead=Ahead()), Refused)
    faster = channel(rate=Rate(messages_per_second=2))
    assert isinstance(known.of(faster).decide(ORDER, NOW, ahead=Ahead()), Write)


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("{key: {}}", "spec.key: a key comes from one of field, header and constant"),
        ("{key: {field: $.a, header: h}}", "one of field, header and constant"),
        ("{key: {field: 'a.b'}}", "a path begins with \\$"),
        ("{key: {field: '$.a[*]'}}", "is no step of a path"),
        ("{key: {field: $.a, whenMissing: null}}", "'keyless' or 'reject'"),
        ("{partitioner: sticky}", "spec.partitioner: 'sticky'"),
        ("{rate: {}}", "spec.rate: it bounds nothing"),
        ("{rate: {messagesPerSecond: -1}}", "greater than or equal to 0"),
        ("{rate: {messagesPerSecond: .inf}}", "finite"),
        ("{rate: {messagesPerSecond: 0.0001}}", "0.001 a second at least"),
        ("{rate: {bytesPerSecond: 1, burstSeconds: 0}}", "greater than 0"),
        ("{sampling: {percent: 0}}", "greater than 0"),
        ("{sampling: {percent: 101}}", "less than or equal to 100"),
        ("{sampling: {percent: 5, by: topic}}", "'key' or 'random'"),
        ("{sampling: {}}", "spec.sampling.percent: Field required"),
        ("{schema: {}}", "spec.schema.json: Field required"),
        ("{schema: {json: {type: nope}}}", "spec.schema.json: "),
        ("{schema: {json: {pattern: '(?=a)'}}}", "look-around"),
        ("{schema: {json: {pattern: '(a{1000}){1000}'}}}", "more than 1 MiB: mend it, or lower its repetitions"),
        ("{schema: {json: {$ref: 'http://127.0.0.1:1/x'}}}", "nothing is fetched"),
        ("{schema: {json: {$ref: 'file:///etc/passwd'}}}", "nothing is fetched"),
        ("{schema: {json: {$ref: '#/$defs/a'}}}", "leads nowhere"),
        ("{schema: {json: {$dynamicRef: '#a'}}}", "dynamicRef is not served"),
        ("{schema: {json: {properties: {a: {$ref: '#'}}}}}", "leads back to itself"),
        ("{schema: {json: {$schema: 'http://example.com/mine'}}}", "meta-schema"),
        ("{schema: {json: {enum: [2026-01-01]}}}", "it is no JSON"),
        ("{deadLetter: Nope!}", "spec.deadLetter: 'Nope!'"),
        ("{deadLetter: nope}", "its deadLetter nope is no channel here"),
        ("{deadLetter: orders}", "in a circle .orders → orders"),
        ("{compression: brotli}", "spec.compression: 'brotli'"),
        ("{batching: {lingerMs: -1}}", "spec.batching.lingerMs: '-1'"),
        ("{batching: {maxBytes: 10}}", "spec.batching.maxBytes: '10'"),
        ("{lane: {}}", "spec.lane: a lane comes from one of header and baggage"),
        ("{lane: {header: a, baggage: b}}", "one of header and baggage"),
        ("{lane: {header: 'x lane'}}", "spec.lane.header: 'x lane'"),
        ("{targets: [{}]}", "spec.targets.0.topic: Field required"),
        ("{targets: [{topic: 'a b'}]}", "spec.targets.0.\\.topic: The topic name 'a b' is illegal"),
        ("{targets: [{topic: a}, {topic: a}]}", "a target stands there twice"),
        ("{targets: [{topic: a}], topic: b}", "leave topic out"),
        ("{targets: [{topic: a, bootstrapServers: nowhere}]}", "spec.targets.0.bootstrapServers: 'nowhere'"),
        ("{redact: {}}", "it names nothing"),
        ("{redact: {replace: [card]}}", "card: a path begins with \\$"),
        ("{redact: {replace: [$.card], remove: [$.card.number]}}", "\\$.card.number is within \\$.card already"),
        ("{redact: {replace: [$.a]}, key: {field: $.a.b}}", "key.field \\$.a.b has what redact takes out"),
        ("{redact: {replace: [$.a.b]}, key: {field: $.a}}", "key.field \\$.a has what redact takes out"),
    ],
)
def test_what_a_channel_may_not_say_is_told(tmp_path: File, spec: str, told: str) -> None:
    file = tmp_path / "channels.yaml"
    file.write_text(f"apiVersion: bmq.io/v1alpha1\nkind: Channel\nmetadata: {{name: orders}}\nspec: {spec}\n")
    with pytest.raises(ConfigurationError, match=told):
        channels_of(file)


def test_dead_letters_that_go_in_a_circle_are_told_at_the_start(tmp_path: File) -> None:
    file = tmp_path / "channels.yaml"
    of = {"a": "b", "b": "c", "c": "a"}
    file.write_text(
        "".join(
            f"---\napiVersion: bmq.io/v1alpha1\nkind: Channel\nmetadata: {{name: {name}}}\nspec: {{deadLetter: {to}}}\n"
            for name, to in of.items()
        )
    )
    with pytest.raises(ConfigurationError, match="a → b → c → a"):
        channels_of(file)


SCHEMA = JsonSchema.of(
    {
        "type": "object",
        "required": ["total"],
        "properties": {
            "total": {"type": "integer", "maximum": 10**30},
            "card": {"properties": {"number": {"type": "string"}}},
        },
    }
)
DEAD = Channel(name="dead", topic="dead-letters", acknowledgement="accepted")


def with_dead_letters(one: Channel, *others: Channel) -> Steps:
    channels = {each.name: each for each in (one, *others)}
    return StepsOfChannels(channels, random=lambda: 0.0, now_s=lambda: NOW.now_s).of(one)


def test_a_value_that_does_not_fit_is_told_by_place_and_rule_and_never_by_what_stands_there() -> None:
    checked = channel(schema=SCHEMA)
    assert isinstance(decided(checked, NewMessage(key=None, value=b'{"total": 100000000000000000000}')), Write)
    assert isinstance(decided(checked, NewMessage(key=None, value=None)), Write)
    for value, told in (
        (b'{"total": "4111"}', "$.total breaks properties/total/type"),
        (b"{}", "$ breaks required (total is missing)"),
        (b'{"total": 1e31}', "breaks properties/total"),
        (b'{"total": 1e99999999999999999999}', "digits"),
        (b"4111 no", "no JSON"),
        (b'{"total": NaN}', "no JSON"),
        (b'{"total": ' + b"1" * 5_000 + b"}", "digits"),
        (b'"' + b"4111" * 300_000 + b'"', "1048576 bytes at most"),
        (b'{"total": ' + b"[" * 900 + b"]" * 900 + b"}", "nested too deep"),
    ):
        outcome = refused(decided(checked, NewMessage(key=None, value=value)))
        assert outcome["status"] == 422 and told in outcome["error"] and "4111" not in outcome["error"]


@pytest.mark.parametrize(
    "items",
    [
        {"type": "string"},
        {"anyOf": [{"type": "string"}, {"type": "array"}]},
        {"enum": [str(one) for one in range(250)]},
    ],
    ids=["type", "anyOf", "enum"],
)
def test_a_value_that_is_wrong_everywhere_takes_no_longer_than_one_that_fits(items: Any) -> None:
    checked = channel(schema=JsonSchema.of({"items": items}))
    fits, wrong = b'["1"' + b',"1"' * 250_000 + b"]", b"[1" + b",1" * 500_000 + b"]"

    def took_s(value: bytes) -> float:
        began_s = time.process_time()
        decided(checked, NewMessage(key=None, value=value))
        return time.process_time() - began_s

    assert took_s(wrong) < 5 * took_s(fits) + 0.2, "all of its errors were looked for"


def test_what_does_not_fit_goes_to_the_dead_letter_channel_redacted_and_with_the_reason() -> None:
    redaction = Redaction(replace=(("card",),))
    steps = with_dead_letters(channel(schema=SCHEMA, redaction=redaction, dead_letter="dead"), DEAD)
    new = NewMessage(key=b"k", value=b'{"card": {"number": 4111}}', headers=(("h", b"1"),), partition=7)
    decision = steps.decide(new, NOW, ahead=Ahead())
    assert isinstance(decision, Write) and decision.channel is DEAD
    message = decision.message
    assert (message.topic, message.key, message.partition) == ("dead-letters", b"k", -1)
    assert message.value == b'{"card":"[redacted]"}'
    assert message.headers[:2] == (("h", b"1"), ("bmq-dead-letter-channel", b"orders"))
    name, why = message.headers[2]
    assert name == "bmq-dead-letter-reason" and why == decision.dead.encode()
    assert b"total is missing" in (why or b"") and b"$.card.number" not in (why or b"") and b"4111" not in (why or b"")


def test_what_cannot_be_redacted_is_no_dead_letter_and_one_that_is_not_taken_is_refused() -> None:
    secret = NewMessage(key=None, value=b"no 4111")
    redacting = channel(schema=SCHEMA, redaction=Redaction(remove=(("a",),)), dead_letter="dead")
    assert "4111" not in refused(with_dead_letters(redacting, DEAD).decide(secret, NOW, ahead=Ahead()))["error"]
    closed = Channel(name="dead", topic="dead", enabled=False)
    for others in ((), (closed,)):
        outcome = refused(
            with_dead_letters(channel(schema=SCHEMA, dead_letter="dead"), *others).decide(secret, NOW, ahead=Ahead())
        )
        assert outcome["status"] == 422
    circle = with_dead_letters(
        channel(schema=SCHEMA, dead_letter="dead"), Channel(name="dead", topic="d", schema=SCHEMA, dead_letter="orders")
    )
    assert "8 times" in refused(circle.decide(secret, NOW, ahead=Ahead()))["error"]


def test_a_schema_that_grows_by_its_references_is_refused() -> None:
    levels = {f"d{one}": {"anyOf": [{"$ref": f"#/$defs/d{one + 1}"}] * 4} for one in range(10)}
    with pytest.raises(BadSchema, match="more than 10000 parts"):
        JsonSchema.of({"$defs": {**levels, "d10": {}}, "$ref": "#/$defs/d0"})


def test_more_manners_than_there_may_be_producers_are_told_at_the_start(tmp_path: File) -> None:
    def written(count: int) -> File:
        file = tmp_path / "channels.yaml"
        head = "---\napiVersion: bmq.io/v1alpha1\nkind: Channel\n"
        one = "metadata: {{name: c{0}}}\nspec: {{batching: {{lingerMs: {0}}}}}\n"
        file.write_text("".join(head + one.format(number) for number in range(count)))
        return file

    assert len(channels_of(written(8))) == 8
    with pytest.raises(ConfigurationError, match=r"9 manners \(partitioner, batching, compression, cluster\)"):
        channels_of(written(9))


class Undecoded(bytes):
    """What is told of it is of a part, which is of `bytes` again."""

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        raise AssertionError("the whole key is decoded")


@pytest.mark.parametrize(
    "rules", [{"sampling": Sampling(percent=100.0)}, {"key": KeyRule(header="k", said="header k")}]
)
def test_of_a_key_no_more_is_decoded_than_is_told_and_nothing_where_nobody_is(rules: dict[str, Any]) -> None:
    key = Undecoded(b"\xff" * 1_000)
    new = NewMessage(key=key, value=None, headers=(("k", key),))
    steps = Steps(channel(**rules), random=lambda: 0.0, now_s=NOW.now_s)
    assert isinstance(steps.decide(new, NOW, ahead=Ahead()), Write)
    told: list[tuple[str, str]] = []
    steps.decide(new, NOW, ahead=Ahead(), told=lambda *one: told.append(one))
    [said] = [what for step, what in told if step == "key"]
    assert said.startswith("'" + "\\\\xff" * 15) and len(said) < 120


@pytest.mark.parametrize(
    "rules",
    [
        {"key": KeyRule(field=("customer",), when_missing="keyless")},
        {"redaction": Redaction(replace=(("customer",),))},
        {"schema": SCHEMA},
    ],
)
def test_a_value_that_is_too_large_to_look_into_does_not_fit(rules: dict[str, Any]) -> None:
    new = NewMessage(key=b"k", value=b'{"customer": 1, "all": [' + b"1," * (1 << 19) + b"1]}")
    outcome = refused(decided(channel(**rules), new))
    assert outcome["status"] == 422 and "has 1048576 bytes at most, not 10486" in outcome["error"]
    decision = with_dead_letters(channel(**rules, dead_letter="dead"), DEAD).decide(new, NOW, ahead=Ahead())
    if "redaction" in rules:
        assert refused(decision)["status"] == 422
    else:
        assert isinstance(decision, Write) and decision.channel is DEAD and decision.message.value == new.value


def test_a_value_that_nothing_looks_into_may_be_large() -> None:
    new = NewMessage(key=b"k", value=b"1" * (2 << 20))
    assert isinstance(decided(channel(key=KeyRule(header="h", said="h"), sampling=Sampling(percent=100.0)), new), Write)
