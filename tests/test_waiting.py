"""What waits says what it waited for; and every test waits so."""

import ast
import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.waiting import NeverSo, let_pass, until, until_async

ROOT: Final = Path(__file__).parent.parent
WAITS: Final = Path("tests/waiting.py")


def test_what_is_there_is_returned_at_the_first_look() -> None:
    assert until(lambda: 7, "a number", 0) == 7
    assert until(lambda: 0, "nothing", 0, holds=lambda seen: seen == 0) == 0
    assert asyncio.run(until_async(lambda: 7, "a number", 0)) == 7


def test_it_looks_until_it_is_there_and_may_be_refused_meanwhile() -> None:
    looks = iter([OSError("refused"), None, [], ["one"]])

    def look() -> list[str] | None:
        seen = next(looks)
        if isinstance(seen, OSError):
            raise seen
        return seen  # type: ignore[return-value]

    assert until(look, "an answer", not_yet=OSError, every_s=0) == ["one"]


def test_looks_may_be_awaited() -> None:
    looks = iter([1, 2, 3])

    async def look() -> int:
        return next(looks)

    assert asyncio.run(until_async(look, "three", holds=lambda seen: seen == 3, every_s=0)) == 3


def test_the_message_names_what_was_waited_for_and_what_was_there_last() -> None:
    with pytest.raises(NeverSo, match=r"waited for three members: it did not come about, .* there was 2\nthe log"):
        until(lambda: 2, "three members", 0, holds=lambda seen: seen == 3, shows=lambda: "the log")
    with pytest.raises(NeverSo, match=r"three members: it did not come about, .* there was 2"):
        asyncio.run(until_async(lambda: 2, "three members", 0, holds=lambda seen: seen == 3))
    with pytest.raises(NeverSo, match=r"an answer: it did not .* OSError\('refused'\)"):
        until(refused, "an answer", 0, not_yet=OSError)


def test_what_nobody_announced_ends_the_waiting() -> None:
    with pytest.raises(OSError, match="refused"):
        until(refused, "an answer", not_yet=ValueError)


def test_nobody_waits_for_what_has_ended_but_looks_once_more() -> None:
    with pytest.raises(NeverSo, match="can no longer come about"):
        until(lambda: False, "a line", unless=lambda: True)
    assert until(lambda: "line", "a line", unless=lambda: True) == "line"


def test_the_last_look_begins_when_the_time_is_over() -> None:
    """However long this process stood still meanwhile."""
    looks = []

    def look() -> bool:
        looks.append(1)
        return len(looks) == 2

    assert until(look, "the second look", 0.001, every_s=0.01)


def test_a_time_is_let_pass_for_a_reason() -> None:
    with pytest.raises(AssertionError):
        let_pass(0, "")


def test_no_test_sleeps_but_by_the_one_module() -> None:
    """`until(look, what)` where something can be looked for; `let_pass(seconds, why)` where the time is the point."""
    found = [f"{path}:{line}" for path in sources() for line in sleeps(ROOT / path)]
    assert found == [], "wait by tests.waiting"


def sources() -> Iterator[Path]:
    """Of all tests."""
    for folder in ("tests", "*/tests", "services/*/tests"):
        for path in sorted(ROOT.glob(f"{folder}/**/*.py")):
            at = path.relative_to(ROOT)
            if at != WAITS:
                yield at


def sleeps(path: Path) -> Iterator[int]:
    """Lines on which it takes `time.sleep`, and those of loops in which a coroutine waits for something."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.ImportFrom(module="time", names=names) if any(one.name == "sleep" for one in names):
                yield node.lineno
            case ast.Attribute(value=ast.Name(id="time"), attr="sleep"):
                yield node.lineno
            case ast.While(test=ast.Constant()):
                continue  # for ever
            case ast.While(body=[*before, ast.Expr(value=ast.Await(value=slept))]) if all(
                isinstance(one, ast.Assert) for one in before
            ) and ast.unparse(slept).startswith("asyncio.sleep("):
                yield node.lineno


def refused() -> str:
    raise OSError("refused")
