"""The checker finds each anomaly that it is for, and nothing in a history without any."""

import pytest
from chaos_checker import (
    ANOMALIES,
    Findings,
    Log,
    build_log,
    check_follower,
    check_group,
    check_latest,
    check_origins,
    check_writer,
    key_of,
)
from chaos_chosen import PRODUCER as BY_HEADER
from chaos_chosen import check_chosen
from chaos_history import ASSIGNED, WRONG, Committed, Latest, Read, Sent, is_for_lane, of_value, value_of

PRODUCER = 7


def read(offset: int, sequence: int, *, partition: int = 0, producer: int = PRODUCER) -> Read:
    return Read(partition, producer, offset, sequence, 0.0)


def acknowledged(sequence: int, offset: int, *, at_s: float = 1.0) -> Sent:
    return Sent(sequence, 0, 0, offset, 0.0, at_s)


def log_of(*sequences: int) -> tuple[Log, Findings]:
    findings = Findings()
    return build_log([read(offset, sequence) for offset, sequence in enumerate(sequences)], findings), findings


def writer_findings(sent: list[Sent], *sequences: int, idempotent: bool = True) -> dict[str, int]:
    log, findings = log_of(*sequences)
    check_writer(PRODUCER, sent, log, findings, name="writer", idempotent=idempotent)
    return dict(findings.counts)


def test_a_value_is_told_from_any_other() -> None:
    assert of_value(value_of(3, 1_000)) == (3, 1_000)
    for wrong in (None, b"", b"short", value_of(3, 1_000)[:-1], value_of(3, 1_000) + b"!"):
        assert of_value(wrong) == (WRONG, 0)


def test_a_history_without_fault_has_no_findings() -> None:
    sent = [acknowledged(sequence, sequence) for sequence in range(3)]
    log, findings = log_of(0, 1, 2)
    check_writer(PRODUCER, sent, log, findings, name="writer", idempotent=True)
    assert check_follower([read(offset, offset) for offset in range(3)], log, findings, name="follower") == 3
    members = {"one": [read(0, 0), read(1, 1)], "two": [read(1, 1), read(2, 2)]}
    commits = [Committed(0, 0, 2, 1.0, 2.0), Committed(0, 0, 3, 3.0, 4.0)]
    assert check_group(members, commits, {0: 3}, log, findings) == 4
    assert check_latest([Latest(0, 0, 3, 2.0, 2.1), Latest(0, 1, 0, 2.0, 2.1)], [sent], findings) == 1
    assert not findings, findings


def test_lost() -> None:
    assert writer_findings([acknowledged(0, 0), acknowledged(1, 1)], 0) == {"lost": 1}


def test_wrong() -> None:
    assert writer_findings([acknowledged(0, 1), acknowledged(1, 0)], 0, 1) == {"wrong": 2}
    findings = Findings()
    log = build_log([Read(0, WRONG, 0, 0, 0.0)], findings)
    check_follower([Read(0, WRONG, 0, 0, 0.0)], log, findings, name="follower")
    assert findings.counts == {"wrong": 2}


def test_stray() -> None:
    log, findings = log_of(0, 1)
    check_origins(log, [PRODUCER], findings, where="a lane")
    assert not findings
    check_origins(log, [PRODUCER + 1], findings, where="a lane")
    assert findings.counts == {"stray": 1}


@pytest.mark.parametrize(
    ("in_base", "in_lane", "wrong"),
    [
        ([1_202], [1_001], {}),
        ([], [1_001], {"lost": 1}),
        ([1_001, 1_202], [], {"stray": 1, "lost": 1}),
        ([1_202, 1_202], [1_001], {"duplicate": 1}),
        ([1_202, 999], [1_001], {"reordered": 1}),
    ],
)
def test_what_names_a_lane_by_a_header(in_base: list[int], in_lane: list[int], wrong: dict[str, int]) -> None:
    assert [is_for_lane(sequence) for sequence in (999, 1_001, 1_202)] == [False, True, False]
    findings = Findings()
    sent = [acknowledged(1_001, 0), acknowledged(1_202, 1)]
    of_base, of_lane = ({0: [key_of(BY_HEADER, sequence) for sequence in log]} for log in (in_base, in_lane))
    assert check_chosen(sent, of_base, of_lane, findings) == 2
    assert findings.counts == wrong


def test_duplicate() -> None:
    assert writer_findings([acknowledged(0, 0)], 0, 0) == {"duplicate": 1}
    assert writer_findings([acknowledged(0, 0), acknowledged(0, 0)], 0) == {"duplicate": 1}


def test_reordered() -> None:
    assert writer_findings([acknowledged(1, 0), acknowledged(0, 1)], 1, 0) == {"reordered": 1}


def test_what_a_plain_producer_writes_twice_or_out_of_order_is_counted_only() -> None:
    log, findings = log_of(1, 0, 1)
    figures = check_writer(
        PRODUCER, [acknowledged(1, 0), acknowledged(0, 1)], log, findings, name="plain", idempotent=False
    )
    assert (figures.duplicates, figures.reordered) == (1, 1)
    assert not findings, findings


def test_what_failed_is_counted_by_code_and_may_be_there_or_not() -> None:
    log, findings = log_of(0)
    rows = [Sent(0, 0, -1, -1, 0.0, 0.0), Sent(1, 0, -192, -1, 0.0, 0.0)]
    figures = check_writer(PRODUCER, rows, log, findings, name="writer", idempotent=True)
    assert figures.failed == {-1: 1, -192: 1}
    assert not findings, findings


def test_gap() -> None:
    findings = Findings()
    build_log([read(0, 0), read(2, 2)], findings)
    assert findings.counts == {"gap": 1}


def test_non_monotonic_and_unseen_by_a_follower() -> None:
    log, findings = log_of(0, 1, 2)
    check_follower([read(0, 0), read(2, 2), read(1, 1)], log, findings, name="follower")
    assert findings.counts == {"non-monotonic": 2, "unseen": 1}


def test_disagreement() -> None:
    log, findings = log_of(0, 1)
    check_follower([read(0, 0), read(1, 5)], log, findings, name="follower")
    assert findings.counts == {"disagreement": 1}


def test_unseen_by_a_group() -> None:
    log, findings = log_of(0, 1, 2)
    again = Read(0, 0, ASSIGNED, 0, 0.0)
    check_group({"one": [read(0, 0), again, read(2, 2)]}, [], {0: 3}, log, findings)
    assert findings.counts == {"unseen": 1}


def test_a_hole_within_one_assignment_of_a_member_is_not_monotonic() -> None:
    log, findings = log_of(0, 1, 2)
    check_group({"one": [read(0, 0), read(2, 2)], "two": [read(1, 1)]}, [], {0: 3}, log, findings)
    assert findings.counts == {"non-monotonic": 1}


def test_stale_end() -> None:
    findings = Findings()
    sent = [acknowledged(0, 0, at_s=1.0), acknowledged(1, 1, at_s=2.0)]
    answers = [Latest(0, 0, 1, 1.5, 1.6), Latest(0, 0, 1, 2.5, 2.6), Latest(0, 0, 2, 2.5, 2.6)]
    check_latest(answers, [sent], findings)
    assert findings.counts == {"stale end": 1}


def test_commit_went_back() -> None:
    log, findings = log_of(0, 1, 2)
    rows = [read(offset, offset) for offset in range(3)]
    check_group({"one": rows}, [Committed(0, 0, 3, 1.0, 2.0)], {0: 2}, log, findings)
    check_group(
        {"one": rows},
        [Committed(0, 0, 3, 1.0, 2.0), Committed(0, 0, 1, 3.0, 4.0), Committed(0, 9, 9, 5.0, 6.0)],
        {0: 3},
        log,
        findings,
    )
    assert findings.counts == {"commit went back": 2}


def test_every_anomaly_has_a_test() -> None:
    tested = {name.removeprefix("test_").replace("_", " ") for name in globals() if name.startswith("test_")}
    missing = {name for name in ANOMALIES if not any(name.replace("-", " ") in test for test in tested)}
    assert not missing
