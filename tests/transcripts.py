"""Transcripts: files of commands (`> ...`) and of what came of them, line by line, which people review."""

import os
from pathlib import Path


def holds(path: Path, happened: str) -> None:
    """Asserts that a transcript is what really happened. With BMQ_REWRITE=1 it is written anew."""
    if os.environ.get("BMQ_REWRITE"):
        path.write_text(happened)
    else:
        assert happened == path.read_text()
