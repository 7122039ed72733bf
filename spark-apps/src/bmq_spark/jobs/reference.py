"""The table of options in docs/tables.md: `python -m bmq_spark.jobs.reference` writes it, and a test holds the page to
it.
"""

import argparse

from bmq_spark.jobs.parquet import parser


def option_rows(of: argparse.ArgumentParser) -> list[str]:
    """A Markdown row for each option, in the order of --help."""
    rows = []
    for action in of._actions:
        if isinstance(action, argparse._HelpAction):
            continue
        shown = "\\|".join(action.choices) if action.choices else action.metavar
        names = "`, `".join(action.option_strings)
        option = names + (f" {shown}" if shown and action.nargs != 0 else "")
        text = (action.help or "") % {"default": f"`{action.default}`"}
        rows.append(f"| `{option}` | {text[:1].upper()}{text[1:]}{' (required)' if action.required else ''} |")
    return rows


if __name__ == "__main__":
    print("\n".join(option_rows(parser())))
