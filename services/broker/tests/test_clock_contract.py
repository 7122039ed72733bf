"""Who may have a clock: brokers and leading controllers know the time from a ClockGuard alone, and decide by it in one
turn of the loop.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SERVICES = Path(__file__).parents[2]
OF_ITS_OWN = {
    "controller/src/bmq_controller/main.py": "makes the guard",
    "controller/src/bmq_controller/standby.py": "makes the guard",
    "controller/src/bmq_controller/api/sources.py": "ages that pages show",
}


def modules() -> list[Path]:
    return sorted(path for service in ("broker", "controller") for path in (SERVICES / service / "src").rglob("*.py"))


def imports_of(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{name.name}" for name in node.names)


def used_after_a_turn(tree: ast.Module) -> Iterator[str]:
    """Names of trusted times that are read behind an `await`, when the clock may have jumped."""
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef)):
        for given in (node for node in ast.walk(function) if isinstance(node, ast.Assign)):
            asks = any(
                isinstance(node, ast.Attribute) and node.attr in ("trusted", "trusted_now_ms")
                for node in ast.walk(given.value)
            )
            if not asks or not isinstance(given.targets[0], ast.Name):
                continue
            waits = [
                place_of(node)[1]
                for node in ast.walk(function)
                if isinstance(node, ast.Await) and place_of(node) > place_of(given)
            ]
            for name in (
                node for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
            ):
                if name.id == given.targets[0].id and waits and place_of(name)[0] > min(waits):
                    yield f"{function.name}: {name.id} in line {name.lineno}"


def place_of(node: ast.expr | ast.stmt) -> tuple[tuple[int, int], tuple[int, int]]:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)


def test_nothing_in_a_broker_or_a_leading_controller_has_a_clock_but_the_guard() -> None:
    having = {
        str(path.relative_to(SERVICES))
        for path in modules()
        if {"bmq.ports.Clock", "bmq.runtime.system.SystemClock"} & {*imports_of(ast.parse(path.read_text()))}
    }
    assert having == {*OF_ITS_OWN}


def test_no_trusted_time_is_used_in_a_later_turn_of_the_loop() -> None:
    found = {str(path.relative_to(SERVICES)): [*used_after_a_turn(ast.parse(path.read_text()))] for path in modules()}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("now = guard.trusted_now_ms()\n    await wait()\n    delete(now)", 1),
        ("trusted = guard.trusted\n    await wait(by_time=trusted)\n    await wait(trusted)", 1),
        ("now = guard.trusted_now_ms()\n    await delete(now)", 0),
        ("await wait()\n    now = guard.trusted_now_ms()\n    delete(now)", 0),
    ],
)
def test_what_is_used_too_late_is_found(body: str, found: int) -> None:
    assert len([*used_after_a_turn(ast.parse(f"async def decide():\n    {body}\n"))]) == found
