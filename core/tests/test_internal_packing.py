"""Wire Messages come back exactly as they were given, whatever is in them."""

import contextlib
import inspect
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bmq.errors import WireError
from bmq.internal.calls import controller_calls, owner_calls
from bmq.internal.framing.packing import Packed, pack_in_pieces, pack_message, unpack_message, whole
from bmq.wire.apis import SERVED
from bmq.wire.error_codes import ErrorCode
from bmq.wire.message import Message
from bmq.wire.messages import decode_request, encode_request

names = st.text("abc_xyz", min_size=1, max_size=8)
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text(max_size=20)
    | st.binary(max_size=30)
    | st.uuids()
    | st.floats(allow_nan=False)
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(names, inner, max_size=4)
        | st.dictionaries(names, inner, max_size=4).map(lambda fields: Message(**fields))
    ),
    max_leaves=20,
)


@given(values)
@settings(max_examples=200, deadline=None)
def test_what_is_packed_is_unpacked_as_it_was(value: Any) -> None:
    back = unpack_message(pack_message(value))
    assert back == value
    assert kinds(back) == kinds(value)


def kinds(value: Any) -> Any:
    """The types, all the way down: 1 and True are equal and not the same."""
    if isinstance(value, Message):
        return Message, kinds(value.__dict__)
    if isinstance(value, dict):
        return {name: kinds(field) for name, field in value.items()}
    if isinstance(value, list):
        return [kinds(element) for element in value]
    return type(value)


@given(values, st.integers(1, 100))
@settings(max_examples=200, deadline=None)
def test_what_is_packed_in_pieces_is_what_is_packed_at_once(value: Any, piece_bytes: int) -> None:
    assert whole(pack_in_pieces(value, piece_bytes=piece_bytes)) == bytes(pack_message(value))


@pytest.mark.parametrize("count", [0, 15, 16, 65_535, 65_536])
def test_any_number_of_elements_is_packed_in_pieces_as_at_once(count: int) -> None:
    value = {"list": [0] * count, "map": {str(number): [number] for number in range(count)}}
    assert whole(pack_in_pieces(value, piece_bytes=1_000)) == bytes(pack_message(value))


def test_a_piece_has_no_more_than_it_should_and_one_element() -> None:
    value = {"groups": [{"topics": [{"name": "t", "partitions": [{"metadata": "m" * 100}] * 1_000}] * 3}]}
    sizes_bytes = [len(piece) for piece in pack_in_pieces(value, piece_bytes=10_000)]
    assert len(sizes_bytes) > 20
    assert max(sizes_bytes) < 10_000 + 200


def test_what_handlers_return_is_understood() -> None:
    reply = {
        "error_code": ErrorCode.not_coordinator,
        "members": (
            {"member_id": "m", "metadata": memoryview(b"abc")},
            Message(member_id="n", metadata=bytearray(b"d")),
        ),
        "topic_id": UUID(int=7),
        "configs": MappingProxyType({"a": "b"}),
    }
    assert unpack_message(pack_message(reply)) == {
        "error_code": 16,
        "members": [{"member_id": "m", "metadata": b"abc"}, Message(member_id="n", metadata=b"d")],
        "topic_id": UUID(int=7),
        "configs": {"a": "b"},
    }


@pytest.mark.parametrize("api_key", [8, 9, 11, 12, 13, 14, 15, 16, 42, 47])
def test_requests_to_coordinators_come_back_as_they_were_in_every_version(api_key: int) -> None:
    api = SERVED[api_key]
    for version in range(api.version_min, api.version_max + 1):
        request = decode_request(api_key, version, encode_request(api_key, version, {}))
        assert unpack_message(pack_message(request)) == request


@given(st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_a_message_or_a_wire_error(data: bytes) -> None:
    with contextlib.suppress(WireError):
        unpack_message(data)


@given(values, st.data())
@settings(max_examples=200, deadline=None)
def test_a_changed_message_is_another_one_or_a_wire_error(value: Any, data: st.DataObject) -> None:
    packed = bytearray(bytes(pack_message(value)))
    packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(WireError):
        unpack_message(packed)


def test_nesting_without_end_is_refused() -> None:
    assert isinstance(unpack_message(b"\x91" * 50 + b"\xc0"), list)
    with pytest.raises(WireError):
        unpack_message(b"\x91" * 100_000 + b"\xc0")


HEADERS = [
    pytest.param(packed, id=f"{module.__name__}.{name}")
    for module in (owner_calls, controller_calls)
    for name, packed in inspect.getmembers(module, lambda value: isinstance(value, Packed))
]


@pytest.mark.parametrize("packed", HEADERS)
@given(data=st.binary(max_size=100))
@settings(max_examples=50, deadline=None)
def test_any_bytes_are_a_header_or_a_wire_error(packed: Packed[Any], data: bytes) -> None:
    with contextlib.suppress(WireError):
        packed.decode(data)


def test_a_header_of_a_newer_bmq_is_read_and_one_of_an_older_too_short_is_refused() -> None:
    header = owner_calls.EPOCH_CALL.encode(owner_calls.EpochCall(UUID(int=1), 2, 3, 4))
    newer = bytes([header[0] + 1]) + header[1:] + b"\xa3new"
    assert owner_calls.EPOCH_CALL.decode(newer) == owner_calls.EpochCall(UUID(int=1), 2, 3, 4)
    with pytest.raises(WireError, match="EpochCall"):
        owner_calls.EPOCH_CALL.decode(bytes([header[0] - 1]) + header[1:-1])
