"""`kubectl bmq report`, with a kubectl that knows one Cluster and nothing else: where the file goes."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

PLUGIN = Path(__file__).parents[2] / "kubectl" / "kubectl-bmq"
KUBECTL = """#!/bin/sh
case "$*" in
  "get clusters.bmq.io -o json") echo '{"items": [{"metadata": {"name": "prod", "namespace": "shop"}}]}' ;;
  *) echo '{"items": []}' ;;
esac
"""


def report(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    kubectl = folder / "bin" / "kubectl"
    kubectl.parent.mkdir(exist_ok=True)
    kubectl.write_text(KUBECTL)
    kubectl.chmod(0o755)
    return subprocess.run(
        [sys.executable, str(PLUGIN), "report", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=os.environ | {"PATH": f"{kubectl.parent}:{os.environ['PATH']}"},
        timeout=60,
    )


def files(folder: Path) -> set[str]:
    return {one.name for one in folder.iterdir() if one.is_file()}


@pytest.mark.parametrize("named", [["-f", "r.tgz"], ["--file", "r.tgz"], ["--file=r.tgz"], ["-fr.tgz"]])
def test_a_report_is_called_as_it_was_asked_for(tmp_path: Path, named: list[str]) -> None:
    done = report(tmp_path, *named)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("r.tgz: ")
    assert files(tmp_path) == {"r.tgz"}
    with tarfile.open(tmp_path / "r.tgz") as archive:
        assert "resources.json" in archive.getnames() and "debug-bundle.tar.gz.missing.txt" in archive.getnames()


def test_a_report_without_a_name_is_called_by_the_time(tmp_path: Path) -> None:
    assert report(tmp_path).returncode == 0
    (name,) = files(tmp_path)
    assert name.startswith("bmq-report-") and name.endswith(".tar.gz")


def test_a_report_that_cannot_be_written_says_why_and_what_helps(tmp_path: Path) -> None:
    done = report(tmp_path, "-f", "nowhere/r.tgz")
    assert done.returncode == 1
    assert done.stderr == (
        "kubectl bmq: nowhere/r.tgz cannot be written (No such file or directory): name a file in another folder "
        "with -f\n"
    )


@pytest.mark.parametrize("unknown", [["--fil", "r.tgz"], ["r.tgz"], ["-n", "shop"], ["-f"]])
def test_what_a_report_does_not_know_it_refuses(tmp_path: Path, unknown: list[str]) -> None:
    done = report(tmp_path, *unknown)
    assert done.returncode == 2 and "kubectl bmq report: error: " in done.stderr
    assert files(tmp_path) == set()
