"""Compressed streams are opened in small steps, whatever they claim, and told from what was cut."""

import gzip

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from bmq_databus.http.incoming import BadBody
from bmq_databus.http.opening import STEP_BYTES, opening_of

CLOSE = {"gzip": gzip.compress, "zstd": zstandard.compress, "": bytes}


def opened(encoding: str, body: bytes, *, part_bytes: int) -> bytes:
    opening = opening_of(encoding)
    found = bytearray()  # bytes would be copied with each step
    for at in range(0, len(body), part_bytes):
        for step in opening.feed(body[at : at + part_bytes]):
            assert 0 < len(step) <= STEP_BYTES
            found += step
    opening.end()
    return bytes(found)


@given(
    encoding=st.sampled_from(sorted(CLOSE)),
    texts=st.lists(st.binary(max_size=300).map(lambda text: text * 500), max_size=3),
    part_bytes=st.integers(1, 5_000),
)
def test_what_was_closed_in_one_piece_or_several_is_opened(encoding: str, texts: list[bytes], part_bytes: int) -> None:
    body = b"".join(CLOSE[encoding](text) for text in texts)
    assert opened(encoding, body, part_bytes=part_bytes) == b"".join(texts)


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_bomb_is_opened_in_small_steps_and_what_is_cut_is_told(encoding: str) -> None:
    bomb = CLOSE[encoding](bytes(64 << 20))
    assert len(bomb) < 100_000
    assert opened(encoding, bomb, part_bytes=1 << 16) == bytes(64 << 20)
    with pytest.raises(BadBody, match=f"ends within its {encoding}"):
        opened(encoding, CLOSE[encoding](b"text")[:-1], part_bytes=100)
    with pytest.raises(BadBody, match=f"no {encoding}"):
        opened(encoding, b"this is none", part_bytes=100)


def test_zstd_of_a_large_window_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27)
    closer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    body = closer.compress(bytes(1000)) + closer.flush()
    with pytest.raises(BadBody, match="window of 8 MiB"):
        opened("zstd", body, part_bytes=100)


def test_an_encoding_that_is_not_served_is_named() -> None:
    with pytest.raises(BadBody, match="'br' is not served: use gzip or zstd"):
        opening_of("br")
