"""What the operator gives the jobs on Kubernetes they take: the command lines of its reviewed objects, through the jobs' own parsers."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from bmq_spark.jobs import compact, parquet

GOLDEN = Path(__file__).parents[2] / "operator" / "tests" / "golden"
_BLOCK = re.compile(r"mainApplicationFile: local:///opt/bmq/spark-apps/(\w+)\.py\n *arguments:\n((?: *- .*\n)+)")


def command_lines(job: str) -> list[list[str]]:
    """The arguments of each application that runs `job`."""
    found = [found for file in sorted(GOLDEN.glob("table*.yaml")) for found in _BLOCK.findall(file.read_text(encoding="utf-8"))]
    return [[line.strip().removeprefix("- ").strip("'") for line in lines.splitlines()] for name, lines in found if name == job]


@pytest.mark.parametrize("arguments", command_lines("parquet"), ids=lambda arguments: arguments[3])
def test_the_parquet_job_takes_what_the_operator_says(arguments: Sequence[str]) -> None:
    options = parquet.parse(arguments)
    assert options.output.startswith("s3a://warehouse/tables")
    assert options.bootstrap_servers == "bmq-bootstrap.shop.svc:9092"
    assert options.once == ("--once" in arguments)


@pytest.mark.parametrize("arguments", command_lines("compact"), ids=lambda arguments: arguments[1])
def test_the_job_that_merges_files_takes_what_the_operator_says(arguments: Sequence[str]) -> None:
    options = compact.parse(arguments)
    assert (options.output, options.older_than_ms) == (arguments[1], 3_600_000)
    assert options.min_files == (8 if options.output == "s3a://warehouse/tables" else 4)
