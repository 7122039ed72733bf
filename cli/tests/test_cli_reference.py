"""docs/cli.md says what the commands are."""

from pathlib import Path

from bmq_cli.reference import reference

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def test_the_page_is_what_the_commands_say() -> None:
    assert PAGE.read_text() == reference(), "run: python -m bmq_cli.reference >docs/cli.md"
