"""Writes docs/cli.md from the commands themselves: `python -m bmq_cli.reference >docs/cli.md`."""

import sys
import typing
from collections.abc import Iterator
from typing import Any, Final

import typer

from bmq_cli.main import app
from bmq_cli.options import PANEL, SharedOptions
from bmq_cli.terminal.exit_codes import MEANINGS
from bmq_cli.terminal.formats import DIRECTIVES

_HIDDEN: Final = frozenset({"help"})
_SHARED: Final = frozenset(SharedOptions.__dataclass_fields__)

_INTRODUCTION: Final = """\
# The `bmq` command

<!-- Written by `python -m bmq_cli.reference >docs/cli.md`: change the commands, not this page. -->

`bmq up` starts bmq, `bmq server` one process of a cluster. `bmq apply`, `bmq lanes`, `bmq channels`, `bmq cluster` and `bmq debug` ask a cluster's
[admin REST API](admin-api.md), and `bmq store` opens a store itself. The other commands talk to any cluster that speaks the Kafka protocol. Each has
`--help`; `bmq --install-completion` teaches the shell to complete commands, options, and the names of topics and groups.

Results go to standard output, everything else to standard error. An error is one line, `error: what: why. remedy`;
`BMQ_DEBUG=1` adds the traceback and the client library's log.
"""

_STAND: Final = """\
They stand before the command's name or after it; `--lane` after it. `bmq apply`, `bmq lanes`, `bmq channels`, `bmq cluster` and `bmq debug` have `--admin` in place
of `--bootstrap-server` and `--lane`, and `bmq store` has none of them.
"""

_POSITIONS: Final = """\
## Positions

Where `--from` and `--to` point to:

| position | meaning |
| --- | --- |
| `beginning`, `earliest` | the log start |
| `end`, `latest` | the high watermark |
| `42`, `offset:42` | this offset, or the nearest that exists |
| `-10` | ten records before the end of each partition |
| `2026-01-31T12:00:00Z`, `2026-01-31` | the first record at or after this time; without a zone: local time |
| `-15m` | as long ago: `ms`, `s`, `m`, `h`, `d` |
| `1769860800000`, `@1769860800000` | milliseconds since 1970; without `@`, numbers from 10^12 on |
"""

_JSON: Final = """\
## Records as JSON

`bmq consume -o json` prints one object a line, and `bmq produce --json` reads the same:

```json
{"topic":"orders","partition":0,"offset":7,"timestamp":1769860800000,"timestamp_type":"create","key":"k","value":"v","headers":[{"name":"h","value":"x"}]}
```

- Bytes that are not UTF-8 are `{"base64": "…"}`; no key, value or header value is `null`.
- To produce, every field may be left out. `topic`, `offset` and `timestamp_type` are ignored, other unknown fields are refused. `headers` may
  also be an object, `timestamp` also an ISO 8601 time. A key or value that is a number, a boolean, a list or another object is sent as
  compact JSON.
"""


def reference() -> str:
    """The page."""
    root: Any = typer.main.get_command(app)
    context = root.make_context("bmq", [], resilient_parsing=True)
    commands = list(commands_of(root, context, "bmq"))
    shared = {
        item.name: item
        for item in [*root.params, *(item for _, command in commands for item in command.params)]
        if _is_shared(item)
    }
    parts = [
        _INTRODUCTION,
        *_exit_codes(),
        _options("## Options of all commands but `up` and `server`", list(shared.values())),
        _STAND,
    ]
    for path, command in commands:
        parts.append(_command(path, command))
    parts += [_POSITIONS, *_formats(), _JSON]
    return "\n".join(parts)


def commands_of(group: Any, context: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Each command below `group` with its whole name."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if hasattr(command, "list_commands"):
            yield from commands_of(command, context, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def _command(path: str, command: Any) -> str:
    arguments = [item for item in command.params if item.param_type_name == "argument"]
    options = [
        item
        for item in command.params
        if item.param_type_name == "option" and item.name not in _HIDDEN and not _is_shared(item)
    ]
    usage = " ".join(
        [path, *(["[OPTIONS]"] if options else []), *(item.metavar or item.name.upper() for item in arguments)]
    )
    lines = [f"## `{path}`", "", command.help or "", "", f"    {usage}", ""]
    return "\n".join(lines) + ("\n" + _options("", options) if options else "")


def _is_shared(item: Any) -> bool:
    """`--lane` of `bmq server` is another one."""
    return item.name in _SHARED and getattr(item, "rich_help_panel", None) == PANEL


def _options(title: str, options: list[Any]) -> str:
    lines = [title, ""] if title else []
    lines += ["| option | meaning |", "| --- | --- |"]
    lines += [f"| {_names(option)} | {_meaning(option)} |" for option in options]
    return "\n".join(lines) + "\n"


def _names(option: Any) -> str:
    value = "" if option.is_flag else f" {option.metavar or _value_name(option)}"
    names = [*sorted(option.opts, key=len, reverse=True), *option.secondary_opts]
    return ", ".join(f"`{name}{value}`" for name in names)


def _value_name(option: Any) -> str:
    annotation = option.get_runtime_param().annotation
    members = getattr((*typing.get_args(annotation), annotation)[0], "__members__", None)
    return "\\|".join(str(member.value) for member in members.values()) if members else "VALUE"


def _meaning(option: Any) -> str:
    text = " ".join((option.help or "").split()).replace("|", "\\|")
    default = option.default
    if not option.show_default or default in (None, False, []) or "efault" in text:
        return text
    shown = option.opts[0] if default is True else getattr(default, "value", default)
    return f"{text.rstrip('.')}. Default: `{shown}`."


def _exit_codes() -> list[str]:
    rows = [f"| {int(code)} | {meaning} |" for code, meaning in MEANINGS.items()]
    return ["\n".join(["## Exit codes", "", "| code | meaning |", "| --- | --- |", *rows]) + "\n"]


def _formats() -> list[str]:
    rows = [f"| `{name}` | {meaning} |" for name, (meaning, _) in DIRECTIVES.items()]
    escapes = r"`\n`, `\t`, `\r`, `\0`, `\\` and `\xHH` are the bytes they stand for. No line break is added."
    return [
        "\n".join(
            [
                "## Formats",
                "",
                "`bmq consume --format`, as in kcat:",
                "",
                "| in it | is |",
                "| --- | --- |",
                *rows,
                "",
                escapes,
            ]
        )
        + "\n"
    ]


if __name__ == "__main__":
    sys.stdout.write(reference())
