"""What tests of running processes share."""

import subprocess
from pathlib import Path
from typing import Final

import pytest

LIBRARIES: Final = ("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1", "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1")


@pytest.fixture(scope="module")
def faketime() -> str:
    """The library that shifts a process's clock, installed where this user may."""
    for _ in range(2):
        for library in LIBRARIES:
            if Path(library).exists():
                return library
        subprocess.run(["apt-get", "install", "-qqy", "--no-install-recommends", "faketime"], capture_output=True, check=False)
    pytest.skip("needs libfaketime (Debian: apt-get install faketime)")
