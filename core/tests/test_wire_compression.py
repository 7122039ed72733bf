"""Five codecs, there and back; whatever a bomb claims or holds, no more than the cap is allocated."""

import struct
import subprocess
import sys
from functools import partial
from pathlib import Path
from random import Random

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bmq.errors import BatchTooLarge, CorruptBatch, RequestError, UnsupportedCompression
from bmq.wire.compression import (
    SNAPPY_BLOCKS_FEW,
    XERIAL_MAGIC,
    Codec,
    codec_of,
    compress,
    decompress,
    decompress_into,
)

COMPRESSED = (1, 2, 3, 4)
MIB = 1 << 20
XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)


def xerial(*blocks: bytes) -> bytes:
    return XERIAL_HEADER + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


@given(st.sampled_from(list(Codec)), st.binary(max_size=2000), st.integers(1, 100))
@settings(max_examples=150, deadline=None)
def test_there_and_back(codec: Codec, data: bytes, repeats: int) -> None:
    data *= repeats
    assert decompress(codec, memoryview(compress(codec, data)), bytes_max=len(data)) == data
    if data:
        with pytest.raises(BatchTooLarge):
            decompress(codec, compress(codec, data), bytes_max=len(data) - 1)


def test_no_block_of_lz4_needs_the_one_before_it() -> None:
    """Java's consumers refuse others ("Dependent block stream is unsupported"): the fifth byte says it, bit 5."""
    assert compress(Codec.LZ4, bytearray(MIB))[4] & 0x20


@pytest.mark.parametrize("codec", COMPRESSED)
def test_output_larger_than_the_first_guess_is_read_whole(codec: int) -> None:
    data = bytes(5 * MIB) + b"end"
    assert decompress(codec, compress(codec, data), bytes_max=6 * MIB) == data


@pytest.mark.parametrize("part", [b"\x00\x00\x00\x03\x01\x00a", XERIAL_HEADER], ids=["blocks", "headers"])
def test_snappy_in_very_many_parts_is_refused_after_few_of_them(part: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    few = SNAPPY_BLOCKS_FEW - 2
    assert len(decompress(Codec.SNAPPY, XERIAL_HEADER + few * part, bytes_max=MIB)) in (0, few)
    looked_at = 0
    length = cramjam.snappy.decompress_raw_len

    def counted(block: memoryview) -> int:
        nonlocal looked_at
        looked_at += 1
        return int(length(block))

    monkeypatch.setattr(cramjam.snappy, "decompress_raw_len", counted)
    for read in (partial(decompress, bytes_max=MIB), partial(decompress_into, output=memoryview(bytearray(MIB)))):
        looked_at = 0
        with pytest.raises(BatchTooLarge, match="write larger"):
            read(Codec.SNAPPY, XERIAL_HEADER + 200_000 * part)
        assert looked_at <= SNAPPY_BLOCKS_FEW + 2


@pytest.mark.parametrize("codec", COMPRESSED)
def test_what_no_codec_makes_smaller_is_read(codec: int) -> None:
    data = Random(1).randbytes(2 * MIB)
    assert decompress(codec, compress(codec, data), bytes_max=2 * MIB) == data


def test_snappy_of_small_blocks_is_read() -> None:
    """As snappy-java writes them at least."""
    block = bytes(cramjam.snappy.compress_raw(bytes(1 << 10)))
    assert decompress(Codec.SNAPPY, xerial(*[block] * 5_000), bytes_max=8 * MIB) == bytes(5_000 << 10)


def test_snappy_is_read_raw_in_blocks_and_from_concatenated_streams() -> None:
    raw = [bytes(cramjam.snappy.compress_raw(part)) for part in (b"one" * 50, b"two" * 50)]
    assert decompress(2, raw[0], bytes_max=1000) == b"one" * 50
    assert decompress(2, xerial(*raw), bytes_max=1000) == b"one" * 50 + b"two" * 50
    assert decompress(2, xerial(raw[0]) + xerial(raw[1]), bytes_max=1000) == b"one" * 50 + b"two" * 50
    assert decompress(2, xerial(), bytes_max=10) == b""


@pytest.mark.parametrize(
    "data",
    [
        XERIAL_MAGIC,
        XERIAL_HEADER + b"\x00",
        XERIAL_HEADER + struct.pack(">i", 0),
        XERIAL_HEADER + struct.pack(">i", 100) + b"abc",
        XERIAL_HEADER + struct.pack(">i", -1) + b"abc",
        b"\xff\xff\xff\xff\x0f",
        b"\xff\xff\xff\xff\x01abc",
        b"",
    ],
)
def test_snappy_that_does_not_hold_together_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptBatch):
        decompress(2, data, bytes_max=1 << 40)


@given(st.sampled_from(COMPRESSED), st.binary(max_size=300), st.data())
@settings(max_examples=200, deadline=None)
def test_damaged_bytes_decompress_or_raise_a_typed_error(codec: int, data: bytes, choose: st.DataObject) -> None:
    damaged = bytearray(compress(codec, data * 5))
    for _ in range(choose.draw(st.integers(1, 3))):
        damaged[choose.draw(st.integers(0, len(damaged) - 1))] = choose.draw(st.integers(0, 255))
    del damaged[choose.draw(st.integers(0, len(damaged))) :]
    try:
        assert len(decompress(codec, damaged, bytes_max=2000)) <= 2000
    except RequestError:
        return


@given(st.integers(0, 4), st.binary(max_size=200), st.integers(0, 3), st.integers(0, 1200), st.booleans())
@settings(max_examples=300, deadline=None)
def test_decompressing_into_memory_of_the_caller_gives_the_same_or_says_that_it_is_too_small(
    codec: int, part: bytes, times: int, size: int, is_random: bool
) -> None:
    data = part if is_random else compress(codec, part * times)
    output = memoryview(bytearray(size))
    try:
        expected: bytes | None = bytes(decompress(codec, data, bytes_max=size))
    except BatchTooLarge:
        expected = None
    except RequestError as error:
        with pytest.raises(type(error)):
            decompress_into(codec, data, output)
        return
    written = decompress_into(codec, data, output)
    assert expected == (None if written is None else bytes(output[:written]))


@given(st.sampled_from(COMPRESSED), st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_random_bytes_decompress_or_raise_a_typed_error(codec: int, data: bytes) -> None:
    try:
        decompress(codec, data, bytes_max=1000)
    except RequestError:
        return


@pytest.mark.parametrize("number", [-1, 5, 6, 7])
def test_codecs_that_do_not_exist_are_refused(number: int) -> None:
    with pytest.raises(UnsupportedCompression):
        codec_of(number)


def bomb(codec: int) -> bytes:
    """More than half a GiB of zeroes in a few MiB at most."""
    if codec == Codec.SNAPPY:
        return xerial(*[bytes(cramjam.snappy.compress_raw(bytes(MIB)))] * 600)
    return compress(codec, bytes(16 * MIB)) * 40


def zstd_with_a_window_of_128_mib() -> bytes:
    header = b"\x28\xb5\x2f\xfd" + b"\x00" + bytes([17 << 3])
    zeroes = ((128 << 10) << 3 | 1 << 1).to_bytes(3, "little") + b"\x00"
    return header + zeroes * 5000 + (1).to_bytes(3, "little")


_MEASURED = """
import resource, sys
from pathlib import Path
from bmq.errors import BatchTooLarge
from bmq.wire.compression import decompress
codec, path, mib = int(sys.argv[1]), Path(sys.argv[2]), 1 << 20
data = path.read_bytes()
for warm in range(1, 5):
    try:
        decompress(warm, b"warm", bytes_max=10)
    except Exception:
        pass
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decompress(codec, data, bytes_max=16 * mib)
except BatchTooLarge:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("codec", [*COMPRESSED, "window"])
def test_a_bomb_costs_no_more_memory_than_the_cap(codec: int | str, tmp_path: Path) -> None:
    """In a process of its own, whose peak memory is measured: half a GiB against a cap of 16 MiB."""
    path = tmp_path / "bomb"
    path.write_bytes(zstd_with_a_window_of_128_mib() if codec == "window" else bomb(int(codec)))
    number = "4" if codec == "window" else str(codec)
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, number, str(path)], capture_output=True, text=True, check=True
    )
    grown_kib = int(done.stdout)
    # The output itself, and as much again for what the codec works with.
    assert grown_kib < 2 * 16 * 1024 + 8 * 1024
