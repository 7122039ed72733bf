"""Messages in frames, as earlier and later versions write them."""

import msgspec
from crc32c import crc32c
from hypothesis import example, given
from hypothesis import strategies as st

from bmq_databus.spool.frames import FrameHead, Once, Spooled, decode_frame, encode_frame
from bmq_databus.spool.identity import ID_BYTES
from bmq_databus.spool.sizes import entry_bytes

BEFORE = ["orders", -1, b"k", b"v", [["h", b"1"]], 17, 18]
"""As versions of before lanes wrote it."""


class Earlier(msgspec.Struct, frozen=True, array_like=True):
    """As they read it."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int
    accepted_ms: int


def test_a_message_of_an_earlier_version_is_of_the_base() -> None:
    payload = msgspec.msgpack.encode([BEFORE])
    (found,) = decode_frame(FrameHead(len(payload), 1, 0, crc32c(payload)), payload)
    assert found == Spooled("orders", -1, b"k", b"v", (("h", b"1"),), 17, 18)
    assert (found.lane, found.partitioner) == ("", "")


def test_lane_and_partitioner_are_in_the_frame_and_earlier_versions_pass_them_over() -> None:
    message = Spooled("orders", -1, b"k", b"v", (("h", b"1"),), 17, 18, "dev", "murmur2")
    _, payload = encode_frame(0, [message])
    assert decode_frame(FrameHead(len(payload), 1, 0, crc32c(payload)), payload) == (message,)
    (earlier,) = msgspec.msgpack.decode(payload, type=tuple[Earlier, ...])
    assert msgspec.to_builtins(earlier, builtin_types=(bytes,))[:4] == BEFORE[:4]


SIZES = st.sampled_from([0, 1, 31, 32, 255, 256, 65_535, 65_536])
DATA = st.none() | SIZES.map(bytes)
LATE = (1 << 63) - 1
TIMES = st.sampled_from([0, -1, 1_790_000_000_000, LATE])
MESSAGES = st.builds(
    Spooled,
    topic=st.sampled_from(["t", "t" * 249]),
    partition=st.sampled_from([-1, 0, 127, (1 << 31) - 1]),
    key=DATA,
    value=DATA,
    headers=st.lists(st.tuples(SIZES.map(lambda size: "ü" * size), DATA), max_size=20).map(tuple),
    timestamp_ms=TIMES,
    accepted_ms=TIMES,
    lane=st.sampled_from(["", "l" * 63]),
    partitioner=st.sampled_from(["", "consistent_random", "murmur2_random"]),
)

HEADERS = tuple((f"{at}" * 256, bytes(65_536)) for at in range(9))


@example([Spooled("t" * 249, (1 << 31) - 1, bytes(65_536), bytes(65_536), (), LATE, LATE)])
@example([Spooled("t" * 249, -1, None, None, HEADERS, LATE, LATE, "l" * 63, "murmur2_random")] * 20)
@given(messages=st.lists(MESSAGES, min_size=1, max_size=20))
def test_messages_take_no_more_on_disk_than_is_reckoned_for_them(messages: list[Spooled]) -> None:
    spool_id = b"i" * ID_BYTES
    assert sum(map(len, encode_frame(1 << 60, messages, spool_id=spool_id))) <= entry_bytes(messages)
    once = Once("k" * 255, bytes(32), (1 << 63) - 1, 207, bytes(70_000))
    reckoned = entry_bytes(messages, once)
    messages[0] = msgspec.structs.replace(messages[0], once=once)
    assert sum(map(len, encode_frame(1 << 60, messages, spool_id=spool_id))) <= reckoned
