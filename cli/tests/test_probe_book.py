"""What a probe knows of the records that it sent."""

from hypothesis import given
from hypothesis import strategies as st

from bmq_cli.probe.book import Failure, ProbeBook


def test_a_record_is_timed_when_it_is_acknowledged_and_when_it_is_seen() -> None:
    book = ProbeBook(timeout_s=10)
    book.sent(1, 0, at_s=100)
    assert book.acknowledged(1, at_s=100.25) == 0.25
    assert book.seen(1, at_s=100.5) == 0.5
    assert book.seen(1, at_s=101) is None
    assert book.overdue(now_s=1000) == []


def test_a_consumer_may_have_a_record_before_its_producer_hears_of_it() -> None:
    book = ProbeBook(timeout_s=10)
    book.sent(1, 0, at_s=100)
    assert book.seen(1, at_s=100.25) == 0.25
    assert book.seen(1, at_s=100.3) is None
    assert book.acknowledged(1, at_s=100.5) == 0.5
    book.sent(2, 0, at_s=100)
    assert book.seen(2, at_s=101) == 1
    assert not book.refused(2)
    book.sent(3, 0, at_s=100)
    book.seen(3, at_s=101)
    assert book.overdue(now_s=200) == []


def test_what_is_late_says_how_far_it_got() -> None:
    book = ProbeBook(timeout_s=10)
    book.sent(1, 3, at_s=100)
    book.sent(2, 4, at_s=101)
    book.acknowledged(2, at_s=102)
    assert book.overdue(now_s=109.9) == []
    assert book.overdue(now_s=110.5) == [(3, Failure.NOT_ACKNOWLEDGED)]
    assert book.overdue(now_s=111) == [(4, Failure.NOT_CONSUMED)]
    assert (book.seen(1, at_s=112), book.refused(2), book.acknowledged(1, at_s=112)) == (None, False, None)


@given(
    st.lists(
        st.tuples(st.sampled_from(["sent", "acknowledged", "refused", "seen", "wait"]), st.integers(0, 4)), max_size=60
    )
)
def test_every_record_ends_once(steps: list[tuple[str, int]]) -> None:
    book = ProbeBook(timeout_s=2)
    now_s, sent, ended = 0.0, 0, 0
    for step, number in steps:
        now_s += 1
        match step:
            case "sent":
                sent += 1
                book.sent(sent, 0, at_s=now_s)
            case "acknowledged":
                book.acknowledged(sent - number, at_s=now_s)
            case "refused":
                ended += book.refused(sent - number)
            case "seen":
                ended += book.seen(sent - number, at_s=now_s) is not None
            case _:
                ended += len(book.overdue(now_s=now_s))
    assert ended + len(book.overdue(now_s=now_s + 2)) == sent
