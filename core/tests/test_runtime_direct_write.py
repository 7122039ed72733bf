"""Files written past the page cache hold exactly what was given, whatever its parts' sizes."""

import os
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bmq.runtime import direct_write

MIB = 1 << 20
SIZES = st.one_of(st.integers(0, 5000), st.sampled_from([MIB - 1, MIB, MIB + 1, 2 * MIB + 17, 4096, 8192]))


@given(st.lists(SIZES, max_size=6))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_holds_its_parts_joined(tmp_path: Path, sizes: list[int]) -> None:
    if not direct_write.works_in(str(tmp_path)):
        return  # nothing is written so there
    parts = [os.urandom(size_bytes) for size_bytes in sizes]
    path = tmp_path / "file"
    fd = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_DIRECT, 0o600)
    try:
        direct_write.write_direct(fd, parts)
    finally:
        os.close(fd)
    assert path.read_bytes() == b"".join(parts)
