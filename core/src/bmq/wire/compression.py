"""Kafka's five codecs. Decompression never allocates more than the caller's cap, whatever the bytes claim.

cramjam writes into an output of fixed size and fails when it is full, so the output grows in steps up to the cap and a
bomb costs at most the cap. Snappy declares its size; that is checked against the cap and against what snappy can reach
at all.

A large output is a mapping of its own: it is neither zeroed nor copied, both of which would stop every other thread
(the event loop's) for as long, and it goes back to the system as soon as nobody looks at it.
"""

from collections.abc import Callable, Iterator
from enum import IntEnum
from mmap import mmap
from typing import Final, TypeAlias

import cramjam
from typing_extensions import Buffer

from bmq.errors import BatchTooLarge, CorruptBatch, UnsupportedCompression

XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER_SIZE_BYTES: Final = 16
XERIAL_BLOCK_SIZE_BYTES: Final = 32 << 10
SNAPPY_BLOCKS_FEW: Final = 1_000
SNAPPY_BLOCK_BYTES_MIN: Final = 512
"""Where there are more blocks, or headers without any, they have so much each on average: what writes xerial's framing
makes none below 1 KiB but the last of a stream."""
_SNAPPY_RATIO_MAX: Final = 64
_OUTPUT_FIRST_BYTES: Final = 16 << 10
_GROWTH: Final = 8
MAPPED_BYTES_MIN: Final = 1 << 20
"""A large mapping is not zeroed, and given back at once."""
_FED_BYTES: Final = 1 << 20
COPIED_BYTES: Final = 256 << 10
"""So much of what is large is copied at a time: nobody else has the interpreter meanwhile."""
_OUTPUT_FULL: Final = "failed to write whole buffer"


Section: TypeAlias = bytes | memoryview
"""Decompressed records: bytes, or a view of a large mapping."""


class Codec(IntEnum):
    """The three lowest bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_CODECS: Final = {int(codec): codec for codec in Codec}


def codec_of(number: int) -> Codec:
    """Raises UnsupportedCompression for a number that is no codec."""
    codec = _CODECS.get(number)  # calling Codec takes several times as long, and each batch asks some times
    if codec is None:
        raise UnsupportedCompression(
            f"codec {number} does not exist; Kafka has none, gzip, snappy, lz4 and zstd (0 to 4)"
        )
    return codec


def in_slices(view: memoryview, size_bytes: int = COPIED_BYTES) -> Iterator[memoryview]:
    """All of it, one part behind the other."""
    return (view[begin : begin + size_bytes] for begin in range(0, len(view), size_bytes))


def plain(source: memoryview, *, bytes_max: int) -> memoryview:
    """What is not compressed, where it lies. Raises BatchTooLarge."""
    if len(source) > bytes_max:
        raise BatchTooLarge(f"{len(source)} bytes of records; at most {bytes_max} are allowed")
    return source


def decompress(codec: int, data: Buffer, *, bytes_max: int) -> Section:
    """The decompressed bytes, at most `bytes_max`.

    Raises CorruptBatch, BatchTooLarge (more than `bytes_max`) or UnsupportedCompression.
    """
    source = memoryview(data)
    match codec_of(codec):
        case Codec.NONE:
            return bytes(plain(source, bytes_max=bytes_max))
        case Codec.GZIP:
            return _into_growing_output("gzip", cramjam.gzip.decompress_into, source, bytes_max)
        case Codec.SNAPPY:
            return _decompress_snappy(source, bytes_max)
        case Codec.LZ4:
            return _into_growing_output("lz4", cramjam.lz4.decompress_into, source, bytes_max)
        case Codec.ZSTD:
            return _into_growing_output("zstd", cramjam.zstd.decompress_into, source, bytes_max)


def decompress_into(codec: int, data: Buffer, output: memoryview) -> int | None:
    """How many bytes of `output` the decompressed ones took; None where it is too small, and then it may hold some of
    them.

    For whoever decompresses batch after batch into memory of their own: new memory for each costs several times the
    decompression. Raises CorruptBatch, UnsupportedCompression, or BatchTooLarge for too many small parts.
    """
    source = memoryview(data)
    match codec_of(codec):
        case Codec.NONE:
            if len(source) > len(output):
                return None
            output[: len(source)] = source
            return len(source)
        case Codec.GZIP:
            return _into("gzip", cramjam.gzip.decompress_into, source, output)
        case Codec.SNAPPY:
            total = _snappy_size(source)
            if total > len(output):
                return None
            _fill_from_snappy(source, output)
            return total
        case Codec.LZ4:
            return _into("lz4", cramjam.lz4.decompress_into, source, output)
        case Codec.ZSTD:
            return _into("zstd", cramjam.zstd.decompress_into, source, output)


def compress(codec: int, data: Buffer) -> bytes:
    """The compressed bytes, as Java clients read them: snappy in xerial's framing, blocks of lz4 that need no other."""
    match codec_of(codec):
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(data))
        case Codec.SNAPPY:
            return _compress_xerial(memoryview(data))
        case Codec.LZ4:
            frame = cramjam.lz4.Compressor(block_linked=False)
            for part in in_slices(memoryview(data), _FED_BYTES):  # a copy of all of it would stop other threads
                frame.compress(bytes(part))
            return bytes(frame.finish())
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data))


def _into_growing_output(
    name: str, into: Callable[[memoryview, memoryview], int], source: memoryview, bytes_max: int
) -> Section:
    size = min(bytes_max, max(_OUTPUT_FIRST_BYTES, _GROWTH * len(source)))
    while (found := _into_output(name, into, source, size)) is None:
        if size >= bytes_max:
            raise BatchTooLarge(
                f"{name}: {len(source)} bytes decompress to more than {bytes_max}, which is the most allowed"
            )
        size = min(bytes_max, size * _GROWTH)
    return found


def _into_output(
    name: str, into: Callable[[memoryview, memoryview], int], source: memoryview, size: int
) -> Section | None:
    """None where `size` bytes are too few. No frame that raises holds the output: its error would keep it in memory."""
    output = _output(size)
    try:
        written = into(source, output)
    except cramjam.DecompressionError as error:
        del output
        _check_full(name, error)
        return None
    return _filled(output, written)


def _into(
    name: str, into: Callable[[memoryview, memoryview], int], source: memoryview, output: memoryview
) -> int | None:
    try:
        return into(source, output)
    except cramjam.DecompressionError as error:
        _check_full(name, error)
        return None


def _check_full(name: str, error: cramjam.DecompressionError) -> None:
    """Raises CorruptBatch unless the output was too small."""
    if _OUTPUT_FULL not in str(error):
        raise CorruptBatch(f"{name}: {error}") from error


def _output(size: int) -> memoryview:
    return memoryview(bytearray(size) if size < MAPPED_BYTES_MIN else mmap(-1, size))


def _filled(output: memoryview, written: int) -> Section:
    return bytes(output[:written]) if written < MAPPED_BYTES_MIN else output[:written]


def _decompress_snappy(source: memoryview, bytes_max: int) -> Section:
    total = _snappy_size(source)
    if total > bytes_max:
        raise BatchTooLarge(
            f"snappy: {len(source)} bytes decompress to more than {bytes_max}, which is the most allowed"
        )
    output = _output(total)
    try:
        _fill_from_snappy(source, output)
    except CorruptBatch:
        del output
        raise
    return _filled(output, total)


def _snappy_size(source: memoryview) -> int:
    """What the blocks declare together, which snappy could reach. Nothing is kept of them: there may be a block for
    every five bytes.
    """
    total = 0
    for count, block in enumerate(_snappy_blocks(source), 1):
        total += _declared(block)
        if count > SNAPPY_BLOCKS_FEW + total // SNAPPY_BLOCK_BYTES_MIN:
            raise BatchTooLarge(f"snappy: more than {count - 1} blocks for {total} bytes: write larger ones")
    return total


def _declared(block: memoryview) -> int:
    try:
        size: int = cramjam.snappy.decompress_raw_len(block)
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"snappy: {error}") from error
    if size > _SNAPPY_RATIO_MAX * len(block):
        raise CorruptBatch(f"snappy: a block of {len(block)} bytes claims {size}, which snappy cannot reach")
    return size


def _fill_from_snappy(source: memoryview, output: memoryview) -> None:
    position = 0
    for block in _snappy_blocks(source):
        size = _declared(block)
        try:
            written = cramjam.snappy.decompress_raw_into(block, output[position : position + size])
        except cramjam.DecompressionError as error:
            del output
            raise CorruptBatch(f"snappy: {error}") from error
        if written != size:
            raise CorruptBatch(f"snappy: a block that claims {size} bytes has {written}")
        position += size


def _snappy_blocks(source: memoryview) -> Iterator[memoryview]:
    """Those of xerial's framing, or the one that there is without it."""
    if bytes(source[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        yield source
        return
    position, headers, blocks = XERIAL_HEADER_SIZE_BYTES, 1, 0
    if len(source) < position:
        raise CorruptBatch(f"snappy: {len(source)} bytes are too few for xerial's header")
    while position < len(source):
        if bytes(source[position : position + len(XERIAL_MAGIC)]) == XERIAL_MAGIC:
            # Concatenated streams: each starts with a header of its own.
            position += XERIAL_HEADER_SIZE_BYTES
            headers += 1
            if headers > SNAPPY_BLOCKS_FEW + blocks:
                raise BatchTooLarge(f"snappy: {headers} headers and {blocks} blocks: write larger streams")
            continue
        blocks += 1
        size = int.from_bytes(source[position : position + 4], "big")
        start = position + 4
        if size == 0 or size > len(source) - start:
            raise CorruptBatch(f"snappy: a block of {size} bytes where {max(0, len(source) - start)} are left")
        yield source[start : start + size]
        position = start + size


def _compress_xerial(source: memoryview) -> bytes:
    parts = [XERIAL_MAGIC, (1).to_bytes(4, "big"), (1).to_bytes(4, "big")]
    for start in range(0, len(source), XERIAL_BLOCK_SIZE_BYTES):
        block = bytes(cramjam.snappy.compress_raw(source[start : start + XERIAL_BLOCK_SIZE_BYTES]))
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)
