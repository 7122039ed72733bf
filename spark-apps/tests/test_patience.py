import pytest
from hurried import TRIES, Moved, hurried

from bmq_spark.patience import AT_ONCE, WAIT_S


class Answering:
    """Fails so often, then answers."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.asked = 0

    def __call__(self) -> str:
        self.asked += 1
        if self.asked <= self.failures:
            raise ConnectionError(str(self.asked))
        return "here"


def passes(error: Exception) -> bool:
    return isinstance(error, ConnectionError)


def test_what_passes_is_asked_again_until_it_answers() -> None:
    clock, question = Moved(), Answering(TRIES - 1)
    began_s = clock.now_s
    assert hurried(clock).ask(question, passes) == "here"
    assert WAIT_S - 2 < clock.now_s - began_s <= WAIT_S


def test_what_does_not_pass_in_time_is_the_last_error() -> None:
    question = Answering(100)
    with pytest.raises(ConnectionError, match=f"^{TRIES}$"):
        hurried().ask(question, passes)
    assert question.asked == TRIES


def test_what_never_passes_is_told_at_once() -> None:
    clock, question = Moved(), Answering(100)
    with pytest.raises(ConnectionError, match=r"^1$"):
        hurried(clock).ask(question, lambda _: False)
    assert clock == Moved() and question.asked == 1


def test_who_has_no_time_asks_once() -> None:
    question = Answering(1)
    with pytest.raises(ConnectionError):
        AT_ONCE.ask(question, passes)
    assert question.asked == 1
