"""Every bound on what a peer may make this process read, allocate or loop over. One place, so that they can be weighed
together.
"""

from typing import Final

FRAME_BYTES_MAX: Final = 2 << 20
"""A request of any API but Produce."""

PRODUCE_FRAME_BYTES_MAX: Final = (100 << 20) + (64 << 10)
"""A Produce request: Kafka's socket.request.max.bytes and room for the header."""

FIRST_FRAME_BYTES_MAX: Final = 64 << 10
"""A frame whose API key is not served: it only has to be large enough to be answered with an error."""

RECEIVE_BUFFER_BYTES: Final = 256 << 10
"""The buffer that all connections of a loop read into. A frame that is not whole in there gets memory of its own."""

FRAME_GROWTH_FIRST_BYTES: Final = 4 << 10
"""What a frame that has only begun to arrive gets at first; doubled as bytes arrive, up to what its peer has sent in
one frame before."""

FRAME_TRUST_BYTES_MAX: Final = 2 << 20
"""The most that is set aside at once for a frame that has only begun to arrive, whatever its peer has sent before."""

STRUCT_TAGS_MAX: Final = 64
"""Tagged fields that end one struct of a request, or its header. They stand there once each, in ascending order."""

TAGS_MAX: Final = 256
"""Tagged fields in one request in all that this version does not know, beside one in each struct: clients of today send
none."""

ELEMENTS_MAX: Final = 100_000
"""Array elements and tagged fields in one request in all: the most that decoding makes of 2 MiB, some tenths of a
second."""

STRING_BYTES_MAX: Final = 0x7FFF
"""One text. What a client says more in none can answer in the older versions, and Kafka takes no longer ones either."""

PRODUCE_PARTITIONS_MAX: Final = 20_000
"""Partitions in one Produce request."""

FETCH_PARTITIONS_MAX: Final = 100_000
"""Partitions in one Fetch request, forgotten ones included."""

DECOMPRESSED_BYTES_MAX: Final = 64 << 20
"""What one record batch may decompress to. Who decompresses for several clients at once bounds how many do."""

BATCH_RECORDS_MAX: Final = 250_000
"""Records of one batch: whoever opens it walks them one by one, some hundred ms for so many. An uncompressed MiB holds
150,000 at most."""

RECORD_HEADERS_MAX: Final = 10_000
"""Headers of one record."""

BATCH_HEADERS_MAX: Final = 250_000
"""Headers of all records of a batch together, where each record is looked at before it is taken
(`bmq.validation=records`)."""
ZSTD_PRODUCE_VERSION_MIN: Final = 7
"""Earlier versions of Produce may not have it, as their clients could not read it (KIP-110)."""
