"""What no seed runs has a reason, and each reason stands for something."""

import json
from pathlib import Path

import pytest

from bmq_sim import main
from bmq_sim.lines import Statement, statements, watched_modules
from bmq_sim.main import FIRST_SEED, _parser, _seeds_of
from bmq_sim.reasons import SAMPLE, Reason, all_names, name_of, of_nothing, reasons, stale, without_reason
from bmq_sim.scenarios import SCENARIOS


def statement(text: str, *, function: str = "f") -> Statement:
    return Statement(module="bmq.m", number=1, end=1, function=function, text=text)


def test_a_reason_is_for_a_statement_by_its_text_or_for_a_whole_function() -> None:
    known = (Reason(why="damage", of=("bmq.m:f: raise Corrupt(*", "bmq.m:page: *")),)
    left = [statement('raise Corrupt(f"{what}")'), statement("return x[0]", function="page"), statement("return x[0]")]
    assert without_reason(left, known) == [left[2]]
    assert list(stale(left, known)) == []


def test_a_reason_is_stale_where_all_of_it_ran_unless_seeds_seldom_run_it() -> None:
    known = (
        Reason(why="never", of=("bmq.m:f: a", "bmq.m:f: b")),
        Reason(why="chance", of=("bmq.m:f: c",), seldom=True),
    )
    assert list(stale([statement("a")], known)) == ["bmq.m:f: b: it ran, so it needs no reason"]


def test_every_reason_says_why_and_is_given_once() -> None:
    known = reasons()
    assert all(len(reason.why) > 30 for reason in known)
    names = [text for reason in known for text in reason.of]
    assert len(names) == len(set(names))


def test_every_reason_is_for_statements_that_there_are() -> None:
    assert of_nothing(reasons()) == []


def test_a_statement_is_named_without_its_line() -> None:
    assert name_of(statement("return 1")) == "bmq.m:f: return 1"


def test_every_scenario_is_in_the_sample() -> None:
    assert SAMPLE.keys() == SCENARIOS.keys()


def test_no_seed_is_run_where_all_that_has_no_reason_ran_in_runs_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(main, "WATCHES", [None])
    monkeypatch.setattr(main, "_run_all", lambda *_: pytest.fail("seeds are run"))
    ran = tmp_path / "ran.json"
    ran.write_text(json.dumps(sorted(all_names() - _with_a_reason())))
    assert main.main(["--unrun", "--ran", str(ran), "--jobs", "1"]) == 0
    assert "0 without a reason" in capsys.readouterr().out


def _with_a_reason() -> set[str]:
    left = [one for module, path in watched_modules().items() for one in statements(module, path)]
    return {name_of(one) for one in left} - {name_of(one) for one in without_reason(left, reasons())}


def test_what_chance_left_out_gets_the_next_seeds_of_each_scenario() -> None:
    options = _parser().parse_args(["--unrun"])
    rounds = [_seeds_of("engine", options, number) for number in range(3)]
    assert [seed for one in rounds for seed in one] == list(range(FIRST_SEED, FIRST_SEED + 3 * SAMPLE["engine"]))
