"""docs/cli.md says what the commands are."""

from pathlib import Path
from typing import Any

import typer

from bmq_cli.main import app
from bmq_cli.reference import commands_of, reference

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def test_the_page_is_what_the_commands_say() -> None:
    assert PAGE.read_text() == reference(), "run: python -m bmq_cli.reference >docs/cli.md"


def test_every_option_that_help_shows_is_on_the_page() -> None:
    root: Any = typer.main.get_command(app)
    page = reference()
    commands = commands_of(root, root.make_context("bmq", [], resilient_parsing=True), "bmq")
    opts = {opt for _, command in commands for item in command.params for opt in item.opts}
    assert {"--lane", "--bootstrap-server", "--admin"} <= opts
    assert [opt for opt in sorted(opts) if opt.startswith("--") and f"`{opt}" not in page and opt != "--help"] == []
