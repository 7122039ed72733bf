"""Messages in frames, as earlier and later versions write them."""

import msgspec
from crc32c import crc32c

from bmq_databus.spool.frames import FrameHead, Spooled, decode_frame, encode_frame

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
