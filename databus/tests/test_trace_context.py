"""Messages carry on the trace context of the request that wrote them."""

import pytest

from bmq_databus.messages.forms import NewMessage
from bmq_databus.messages.trace_context import OTHERS_BYTES_MANY, OTHERS_BYTES_MAX, context_of, with_context

PARENT = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_a_request_with_a_trace_has_its_three_headers_carried_on_and_others_are_not() -> None:
    request = [
        (b"traceparent", PARENT),
        (b"tracestate", b"a=1"),
        (b"tracestate", b"b=2"),
        (b"baggage", b"user=7"),
        (b"authorization", b"Bearer secret"),
    ]
    wanted = (("traceparent", PARENT), ("tracestate", b"a=1,b=2"), ("baggage", b"user=7"))
    assert context_of(request, messages=1) == context_of(request, messages=5) == wanted
    assert context_of([(b"host", b"localhost")], messages=1) == ()


@pytest.mark.parametrize(
    "parent",
    [
        b"",
        b"garbage",
        PARENT.upper(),
        b"ff" + PARENT[2:],
        PARENT[:-3],
        b"00-" + b"0" * 32 + PARENT[35:],
        PARENT[:36] + b"0" * 16 + b"-01",
        PARENT + b"-" + b"x" * 300,
    ],
)
def test_what_is_no_traceparent_is_left_out_and_tracestate_with_it(parent: bytes) -> None:
    request = [(b"traceparent", parent), (b"tracestate", b"a=1"), (b"baggage", b"user=7")]
    assert context_of(request, messages=1) == (("baggage", b"user=7"),)
    assert context_of([(b"traceparent", PARENT), (b"traceparent", PARENT)], messages=1) == ()


def test_large_state_and_baggage_stay_behind_where_each_of_many_messages_would_have_them() -> None:
    for messages, most in ((1, OTHERS_BYTES_MAX), (2, OTHERS_BYTES_MANY)):
        fits = [(b"traceparent", PARENT), (b"baggage", b"a=" + b"x" * (most - 2))]
        assert [name for name, _ in context_of(fits, messages=messages)] == ["traceparent", "baggage"]
        large = [*fits, (b"tracestate", b"b")]
        assert [name for name, _ in context_of(large, messages=messages)] == ["traceparent"]


def test_what_a_message_says_itself_goes_first() -> None:
    context = (("traceparent", PARENT), ("baggage", b"user=7"))
    plain = NewMessage(key=None, value=b"v", headers=(("a", b"1"),))
    assert with_context(plain, context).headers == (("a", b"1"), *context)
    own = NewMessage(key=None, value=b"v", headers=(("Baggage", b"mine=1"),))
    assert with_context(own, context).headers == (("Baggage", b"mine=1"), ("traceparent", PARENT))
    other = NewMessage(key=None, value=b"v", headers=(("traceparent", b"other"),))
    assert with_context(other, context) is other
