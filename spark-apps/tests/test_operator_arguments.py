"""What the operator gives the jobs on Kubernetes they take: every command line that it can make, through the jobs' own
parsers.
"""

import argparse
import json
import subprocess
from collections.abc import Mapping, Sequence

import pytest
from compat_server import ROOT

from bmq_spark.jobs import compact, iceberg, parquet
from bmq_spark.jobs.decoders import is_inferred
from bmq_spark.options import JobOptions

Lines = Mapping[str, Sequence[Sequence[str]]]
NOT_IN_RESOURCES = {
    "--help",
    "--event-log",
    "--max-partitions-per-batch",
    "--catalog-config",
    "--maintain-every",
    "--keep-snapshots",
    "--orphans-older-than",
    "--bootstrap-server",
}
"""Options that no resource has; the event log is set by Spark's own settings, and the last one is another name."""


@pytest.fixture(scope="module")
def lines() -> Lines:
    """Made by the operator's code, in its environment."""
    command = [ROOT / ".venv" / "bin" / "python", ROOT / "operator" / "tests" / "table_command_lines.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert not done.returncode, done.stderr
    found: Lines = json.loads(done.stdout)
    return found


def flags(of: Sequence[Sequence[str]]) -> set[str]:
    return {argument.partition("=")[0] for line in of for argument in line}


def known(parser: argparse.ArgumentParser) -> set[str]:
    return {
        name for action in parser._actions for name in action.option_strings if name.startswith("--")
    } - NOT_IN_RESOURCES


def test_the_parquet_job_takes_all_that_the_operator_can_say(lines: Lines) -> None:
    assert len(lines["parquet"]) > 50
    for line in lines["parquet"]:
        options = parquet.parse(line)
        assert options.bootstrap_servers == "bmq-bootstrap.shop.svc:9092"
        assert (options.output, options.once) == (
            "s3a://warehouse/tables" if len(options.topics) > 1 else options.output,
            "--once" in line,
        )
    assert flags(lines["parquet"]) == known(parquet.parser())


def test_the_iceberg_job_takes_all_that_the_operator_can_say(lines: Lines) -> None:
    assert len(lines["iceberg"]) > 100
    for line in lines["iceberg"]:
        options = iceberg.parse(line)
        assert isinstance(options, iceberg.IcebergOptions), line
        refused_later = is_inferred(options) and options.target.settings.upsert_key
        assert not refused_later, line
        options.target.catalog.settings({})
    assert flags(lines["iceberg"]) == known(iceberg.parser())


def test_the_job_that_merges_files_takes_all_that_the_operator_can_say(lines: Lines) -> None:
    for line in lines["compact"]:
        options = compact.parse(line)
        assert (options.retention_ms is not None) == any(argument.startswith("--retention=") for argument in line)
    assert flags(lines["compact"]) == {
        "--output",
        "--target-file-size",
        "--min-files",
        "--older-than",
        "--vacuum-older-than",
        "--retention",
    }


def test_values_that_look_like_options_reach_the_job(lines: Lines) -> None:
    found: list[JobOptions] = [parquet.parse(line) for line in lines["parquet"] if "--group=-group" in line]
    assert {(one.topics, one.group, one.accept_loss, one.source) for one in found} == {
        (("-orders", "a.b_c"), "-group", True, "bmq")
    }
