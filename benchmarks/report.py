"""The table on the screen, and the results on disk: one JSON file and the same as Markdown. A run of some topics
replaces their rows alone.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.rows import Row, number, shown

FOLDER = Path(__file__).parent / "results"
HEAD = ("measure", "setting", "bmq", "peer", "bmq ÷ peer", "to reach", "reached", "beside")


def cells(row: Row) -> tuple[str, ...]:
    """The row as text, under HEAD."""
    target = ""
    if row.target is not None:
        what = " " + row.unit if row.target_of == "bmq" else " ×"
        target = f"{'≥' if row.at_least else '≤'} {row.target:g}{what}"
    ratio = "" if row.ratio is None else number(row.ratio)
    peer = f"{row.peer_name} {shown(row.peer)}" if row.peer else ""
    return row.measure, row.setting, f"{shown(row.bmq)} {row.unit}", peer, ratio, target, row.reached, row.beside


def show(rows: Sequence[Row], facts: dict[str, str]) -> None:
    """One table."""
    quick = any(row.quick for row in rows)
    title = "bmq against its peers" + (": a quick run, too short for steady rolls and deletions" if quick else "")
    table = Table(title=title, caption=" · ".join(f"{name} {value}" for name, value in facts.items()), show_lines=False)
    for name in HEAD:
        table.add_column(name, justify="right" if name == "bmq ÷ peer" else "left", overflow="fold")
    for row in rows:
        table.add_row(*cells(row), style={"no": "red", "rounds disagree": "yellow"}.get(row.reached, ""))
    Console(width=None if Console().is_terminal else 200).print(table)


class Results:
    """The rows of one name; every save writes all of them."""

    def __init__(self, name: str) -> None:
        self._path = FOLDER / f"{name}.json"
        self._rows: dict[tuple[str, str], tuple[Row, dict[str, str]]] = {}
        if self._path.exists():
            for saved in json.loads(self._path.read_text())["rows"]:
                taken = saved.pop("run")
                saved.pop("ratio"), saved.pop("reached")
                row = Row(**saved)
                self._rows[row.key] = row, taken

    def add(self, row: Row, run: dict[str, str]) -> None:
        """`run` tells when and how much; it is kept with the row."""
        self._rows[row.key] = row, run

    def save(self, facts: dict[str, str]) -> None:
        """JSON for machines, Markdown for people."""
        FOLDER.mkdir(exist_ok=True)
        rows = [
            asdict(row) | {"ratio": row.ratio, "reached": row.reached, "run": run} for row, run in self._rows.values()
        ]
        self._path.write_text(json.dumps({"machine": facts, "rows": rows}, indent=1, ensure_ascii=False) + "\n")
        lines = ["# bmq against its peers", ""]
        lines += [f"- {name}: {value}" for name, value in facts.items()]
        lines += ["", "| " + " | ".join((*HEAD, "run")) + " |", "| " + " | ".join("---" for _ in (*HEAD, "run")) + " |"]
        for row, run in self._rows.values():
            lines.append("| " + " | ".join((*cells(row), ", ".join(run.values()))) + " |")
        self._path.with_suffix(".md").write_text("\n".join(lines) + "\n")
