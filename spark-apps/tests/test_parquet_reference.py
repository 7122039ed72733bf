from pathlib import Path

from bmq_spark.jobs.parquet import parser
from bmq_spark.jobs.reference import option_rows

PAGE = Path(__file__).parents[2] / "docs" / "tables.md"


def test_the_page_has_every_option_as_the_command_has_it() -> None:
    lines = PAGE.read_text().splitlines()
    start = lines.index("| option | meaning |") + 2
    assert lines[start : lines.index("", start)] == option_rows(parser()), "run python -m bmq_spark.jobs.reference"
