"""Every bound on what a peer may make this process read, allocate or loop over. One place, so that they can be weighed together."""

from typing import Final

FRAME_BYTES_MAX: Final = 2 << 20
"""A request of any API but Produce."""

PRODUCE_FRAME_BYTES_MAX: Final = (100 << 20) + (64 << 10)
"""A Produce request: Kafka's socket.request.max.bytes and room for the header."""

FIRST_FRAME_BYTES_MAX: Final = 64 << 10
"""A frame whose API key is not served: it only has to be large enough to be answered with an error."""

SMALL_FRAME_BYTES_MAX: Final = 64 << 10
"""Up to this size a frame is read into the connection's reusable buffer, above it into memory of its own."""

HEADER_TAGS_MAX: Final = 64
"""Tagged fields in a request header, which is read before authentication."""

ELEMENTS_MAX: Final = 200_000
"""Array elements in one request in all."""

NATIVE_BODY_BYTES_MAX: Final = 64 << 10
"""Bodies up to this size go through kio's native reader, larger ones through the decoder that counts elements."""

PRODUCE_PARTITIONS_MAX: Final = 20_000
"""Partitions in one Produce request."""

FETCH_PARTITIONS_MAX: Final = 100_000
"""Partitions in one Fetch request, forgotten ones included."""

DECOMPRESSED_BYTES_MAX: Final = 64 << 20
"""What one record batch may decompress to. Who decompresses for several clients at once bounds how many do."""

RECORD_HEADERS_MAX: Final = 10_000
"""Headers of one record."""
