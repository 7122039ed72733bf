"""The state inside a coordinator snapshot: it reads back, and no bytes lead to anything but a state or a typed
error.
"""

import contextlib

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_group_records import group_values, int32s, offset_values, texts

from bmq.errors import Corrupt, FormatError, FormatTooNew
from bmq_broker.coordinators.groups.durable import DurableState
from bmq_broker.coordinators.groups.records import GroupKey, OffsetKey
from bmq_broker.coordinators.groups.snapshot import FORMAT_VERSION, decode_state, encode_state


@st.composite
def states(draw: st.DrawFn) -> DurableState:
    state = DurableState()
    for group_id in draw(st.lists(texts, max_size=3)):
        state.replay(GroupKey(group_id), draw(group_values()))
    for group_id, topic, partition in draw(st.lists(st.tuples(texts, texts, int32s), max_size=5)):
        state.replay(OffsetKey(group_id, topic, partition), draw(offset_values))
    return state


@settings(max_examples=100, deadline=None)
@given(states())
def test_a_state_reads_back(state: DurableState) -> None:
    assert decode_state(encode_state(state)) == state


@settings(max_examples=100, deadline=None)
@given(states())
def test_a_copy_is_a_view_of_one_moment(state: DurableState) -> None:
    copy, before = state.copy(), encode_state(state)
    for group_id, topic, partition, _ in list(state.all_offsets()):
        state.replay(OffsetKey(group_id, topic, partition), None)
    for group_id in list(state.groups):
        state.replay(GroupKey(group_id), None)
    assert state == DurableState()
    assert encode_state(copy) == before


@settings(max_examples=150, deadline=None)
@given(states(), st.data())
def test_a_truncated_or_changed_state_is_a_typed_error_or_another_state(
    state: DurableState, data: st.DataObject
) -> None:
    whole = encode_state(state)
    with pytest.raises(FormatError):
        decode_state(whole[: data.draw(st.integers(0, len(whole) - 1))])
    changed = bytearray(whole)
    changed[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(FormatError):
        decode_state(bytes(changed))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=40))
def test_any_bytes_are_a_state_or_a_typed_error(raw: bytes) -> None:
    with contextlib.suppress(FormatError):
        decode_state(raw)


def test_a_state_that_is_too_new_is_refused_by_name() -> None:
    with pytest.raises(FormatTooNew, match="format version 2; this bmq reads up to version 1: upgrade it"):
        decode_state(msgspec.msgpack.encode([FORMAT_VERSION + 1, "something else"]))


def test_keys_without_values_are_corrupt() -> None:
    with pytest.raises(Corrupt):
        decode_state(msgspec.msgpack.encode([FORMAT_VERSION, [b"\0\2\0\1g"], []]))
