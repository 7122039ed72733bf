"""An error means the same on the other side of a connection."""

import contextlib
import inspect

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bmq import errors
from bmq.errors import BmqError, NotReady, OffsetOutOfRange, StoreError, UnknownOutcome, WireError
from bmq.internal.framing.failures import ConnectionLost, Failure, NotSent, decode_failure, encode_failure
from bmq.internal.framing.refusals import Refusal
from bmq.internal.limits import ERROR_TEXT_CHARS_MAX
from bmq.storage.flatlog import GapFound
from bmq.wire.chosen_codes import code_for

KINDS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, BmqError)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_of_bmq_comes_back_as_its_class_with_its_text(kind: type[BmqError]) -> None:
    error = decode_failure(encode_failure(kind("orders/3: why, and what to do — in words"))).error()
    assert type(error) is kind
    assert str(error) == "orders/3: why, and what to do — in words"


def test_an_error_that_only_one_package_knows_comes_back_as_its_nearest_base() -> None:
    assert type(decode_failure(encode_failure(GapFound("entry 7 is missing", 7))).error()) is BmqError
    assert type(decode_failure(encode_failure(NotSent("n"))).error()) is NotReady
    assert type(decode_failure(encode_failure(ConnectionLost("n"))).error()) is UnknownOutcome


def test_an_error_of_a_newer_bmq_comes_back_as_the_nearest_one_known() -> None:
    assert type(Failure(("DiskTooSlow", "StoreError", "BmqError"), "slow").error()) is StoreError
    assert type(Failure(("Unheard",), "of").error()) is BmqError
    assert type(Failure((), "empty").error()) is BmqError


def test_a_bug_comes_back_as_an_error_that_says_so() -> None:
    error = decode_failure(encode_failure(KeyError("lost"))).error()
    assert type(error) is BmqError
    assert str(error) == "an internal error: KeyError: 'lost'"


def test_a_refusal_travels_with_its_error() -> None:
    failure = decode_failure(encode_failure(NotReady("full"), Refusal(3, 17)))
    assert (failure.refusal, failure.looked_at) == (3, 17)
    assert decode_failure(encode_failure(NotReady("full"))) == Failure(("NotReady", "BmqError"), "full", 0, 0)


def test_a_text_without_end_is_cut() -> None:
    assert len(decode_failure(encode_failure(OffsetOutOfRange("x" * 100_000))).text) == ERROR_TEXT_CHARS_MAX


def test_local_failures_have_the_codes_of_what_they_are() -> None:
    assert code_for(NotSent("n")) is code_for(NotReady("n"))
    assert code_for(ConnectionLost("n")) is code_for(UnknownOutcome("n"))


@given(st.binary(max_size=100))
@settings(max_examples=200)
def test_any_bytes_are_an_error_or_a_wire_error(data: bytes) -> None:
    with contextlib.suppress(WireError):
        assert isinstance(decode_failure(data).error(), BmqError)
