"""What is kept in a folder only its user may read, unless its URL says otherwise."""

import os
from pathlib import Path

import pytest
from cli_cluster import run_process, started_bmq

from bmq.errors import ConfigurationError
from bmq.runtime.store_url import parse_store_url
from bmq_node.process.starting import keep_private


def open_to_others(folder: Path) -> list[str]:
    """What somebody else may do anything with."""
    return [str(path.relative_to(folder)) for path in sorted(folder.rglob("*")) if path.lstat().st_mode & 0o077]


def test_nobody_else_may_read_what_a_server_keeps_in_a_folder(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with started_bmq(tmp_path) as address:
            run_process(address, ["topics", "create", "orders"])
            assert run_process(address, ["produce", "orders"], stdin=b"a\n").code == 0
        files = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
        assert len(files) > 3
        assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
        assert open_to_others(tmp_path / "data") == []
    finally:
        os.umask(before)


def test_the_umask_decides_where_the_url_says_so() -> None:
    before = os.umask(0o027)
    try:
        keep_private("file:///data?private=false")
        keep_private("memory://")
        assert os.umask(0o027) == 0o027
        keep_private("file:///data")
        assert os.umask(0o027) == 0o077
    finally:
        os.umask(before)
    with pytest.raises(ConfigurationError, match="private"):
        parse_store_url("file:///data?private=maybe")
