"""What the operator surely did not make: nothing was asked for that may have come about since it wrote the intent."""

import pytest

from bmq_admin.errors import AdminProblem, AdminUnreachable
from bmq_operator.intents import INTENTS_MAX, Intents


def refused(status: int) -> AdminProblem:
    return AdminProblem(status=status, code="Code", what="what", why="why", remedy="remedy")


def asks(intents: Intents, error: Exception | None) -> None:
    try:
        with intents.asking("uid"):
            if error is not None:
                raise error
    except (AdminProblem, AdminUnreachable):
        pass


@pytest.mark.parametrize(
    ("errors", "made_none"),
    [
        ([], True),
        ([refused(400)], True),
        ([refused(400), refused(404)], True),
        ([None], False),
        ([AdminUnreachable("lost")], False),
        ([refused(503)], False),
        ([refused(409)], False),
        ([AdminUnreachable("lost"), refused(400)], False),
    ],
)
def test_only_plain_refusals_leave_it_sure(errors: list[Exception | None], made_none: bool) -> None:
    intents = Intents()
    intents.mean("uid")
    for error in errors:
        asks(intents, error)
    intents.mean("uid")  # its status was not written, and is by the next look
    assert intents.made_none("uid") is made_none


def test_of_an_intent_that_another_operator_wrote_nothing_is_sure() -> None:
    intents = Intents()
    asks(intents, refused(400))
    assert not intents.made_none("uid")


def test_only_so_many_are_remembered() -> None:
    intents = Intents()
    for number in range(INTENTS_MAX + 1):
        intents.mean(str(number))
    assert not intents.made_none("0") and intents.made_none("1")
