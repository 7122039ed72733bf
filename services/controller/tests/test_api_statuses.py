"""Every problem that the API tells of, and every error of bmq's, has one HTTP status."""

import ast
import inspect
from pathlib import Path

import pytest

import bmq_controller.api
from bmq import errors
from bmq_controller.api.problems import Refused, refusal_of
from bmq_controller.api.statuses import OF_ERRORS, OF_PROBLEMS, told_of

ERRORS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.BmqError)]
ASKS_AGAIN = (errors.StoreError, errors.NotReady, errors.NotOwner, errors.Fenced, errors.ControllerUnavailable)


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_of_bmqs_has_a_status_that_says_whose_turn_it_is(kind: type[errors.BmqError]) -> None:
    status = refusal_of(kind("it is so"), "topic a").status
    if issubclass(kind, ASKS_AGAIN):
        assert status == 503
    elif issubclass(kind, errors.RequestError):
        assert 400 <= status <= 499
    else:
        assert status == 500


def test_a_class_of_somebody_elses_is_told_as_the_nearest_above_it() -> None:
    class Odd(errors.TopicExists):
        pass

    assert told_of(Odd("x")) == OF_ERRORS[errors.TopicExists]


def test_every_problem_that_is_named_has_a_status_and_every_status_is_named() -> None:
    named = {code for path in _sources() for code in _codes(ast.parse(path.read_text()))}
    unnamed_here = {"LengthRequired"}  # by the connections of a node's admin address
    assert named | unnamed_here == set(OF_PROBLEMS)


def test_a_problem_has_the_status_of_its_name() -> None:
    refused = Refused("NoHeir", "nobody takes it", "start a broker").about("node 7")
    assert (refused.status, refused.code) == (409, "NoHeir")


def _sources() -> list[Path]:
    return sorted(Path(inspect.getfile(bmq_controller.api)).parent.glob("*.py"))


def _codes(tree: ast.Module) -> set[str]:
    """What stands first in a refusal, or second behind the request; and what app.py chooses between."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            at = {"Refused": 0, "refusal": 0, "_refusal": 1}.get(node.func.id)
            if at is not None and isinstance(node.args[at], ast.Constant):
                found.add(node.args[at].value)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
            names = [name.id for name in ast.walk(node.targets[0]) if isinstance(name, ast.Name)]
            if names == ["why", "code"] and isinstance(node.value.elts[1], ast.Constant):
                found.add(node.value.elts[1].value)
    return found
