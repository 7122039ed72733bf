"""What holds of all source, and no linter looks for: nothing that nobody uses, docstrings that can be read alone, and
modules that are what they say.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
OVERRIDES: Final = {
    "send_400_response": "of h11's protocol in uvicorn",
    "settings_customise_sources": "of pydantic's settings",
    "streamReader": "of PySpark's data sources",
    "on_broken_pipe": "of Rich's console",
    **dict.fromkeys(
        ("get_write_buffer_limits", "is_reading", "set_protocol", "get_protocol"), "of asyncio's transports"
    ),
    **dict.fromkeys(("_timer_handle_cancelled", "_write_to_self"), "of asyncio's loops"),
}
"""What only a library calls."""
OWN_DECORATORS: Final = ("property", "cached_property", "classmethod", "staticmethod", "cache", "contextmanager")
"""With others a library knows the function."""


def ours(pattern: str) -> Iterator[Path]:
    """Files of the repository. What tools and running clusters keep in hidden folders comes and goes."""
    for folder in sorted(ROOT.iterdir()):
        if folder.is_dir() and not folder.name.startswith("."):
            for path in sorted(folder.rglob(pattern)):
                if not any(part.startswith((".", "node_modules")) for part in path.relative_to(ROOT).parts):
                    yield path


@cache
def trees() -> dict[Path, ast.Module]:
    """But for what protoc writes."""
    return {path: ast.parse(path.read_text()) for path in ours("*.py") if not path.name.endswith("_pb2.py")}


def sources() -> dict[Path, ast.Module]:
    return {path: tree for path, tree in trees().items() if "src" in path.relative_to(ROOT).parts}


def defined(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Functions, methods and classes, and what a module calls by a name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            decorators = {re.split(r"[.(]", ast.unparse(one))[0] for one in node.decorator_list}
            if decorators <= {*OWN_DECORATORS, "dataclass"}:
                yield node.name, node.lineno
    for statement in tree.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else ()
        if isinstance(statement, ast.AnnAssign):
            targets = (statement.target,)
        yield from ((one.id, one.lineno) for one in targets if isinstance(one, ast.Name))


def test_everything_that_has_a_name_is_used() -> None:
    words = Counter(word for path in trees() for word in re.findall(r"\w+", path.read_text()))
    for project in (ROOT / "pyproject.toml", *ours("pyproject.toml")):
        words.update(re.findall(r"\w+", project.read_text()))
    unused = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path, tree in sources().items()
        for name, line in defined(tree)
        if words[name] == 1 and name not in OVERRIDES and not name.startswith("__")
    ]
    assert not unused, unused
    assert len(sources()) > 500


def docstrings(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Also those of constants and fields."""
    for node in ast.walk(tree):
        for statement in getattr(node, "body", ()) if not isinstance(node, ast.Lambda | ast.IfExp) else ():
            if (
                isinstance(statement, ast.Expr)
                and isinstance(statement.value, ast.Constant)
                and isinstance(statement.value.value, str)
            ):
                yield statement.value.value, statement.lineno


def test_no_docstring_needs_the_name_above_it_to_be_read() -> None:
    begun = [
        f"{path.relative_to(ROOT)}:{line} {text[:60]!r}"
        for path, tree in sources().items()
        for text, line in docstrings(tree)
        if re.match(r"Of (?!course)", text)
    ]
    assert not begun, begun


OUTSIDE: Final = frozenset(
    [
        "asyncio",
        "concurrent",
        "httpx",
        "kopf",
        "logging",
        "obstore",
        "random",
        "secrets",
        "socket",
        "structlog",
        "subprocess",
        "threading",
        "time",
        "uvicorn",
        "uvloop",
    ]
)
"""Time, network, storage, chance and the log."""


def imported(statements: Iterable[ast.stmt]) -> Iterator[str]:
    """What is imported when the module is, or later, but for types."""
    for one in statements:
        if isinstance(one, ast.If) and "TYPE_CHECKING" in ast.unparse(one.test):
            continue
        if isinstance(one, ast.Import):
            yield from (alias.name for alias in one.names)
        elif isinstance(one, ast.ImportFrom):
            yield str(one.module)
        for part in ("body", "orelse", "finalbody", "handlers"):
            yield from imported(getattr(one, part, ()))


def test_a_module_that_says_that_it_is_pure_reaches_nothing_outside_and_waits_for_nothing() -> None:
    pure = {
        path: tree for path, tree in sources().items() if re.search(r"\bPure\b(?!, but)", ast.get_docstring(tree) or "")
    }
    assert len(pure) > 150
    for path, tree in pure.items():
        reached = {name.partition(".")[0] for name in imported(tree.body)} & OUTSIDE
        assert not reached, f"{path.relative_to(ROOT)} imports {reached}"
        waits = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef | ast.Await)]
        assert not waits, f"{path.relative_to(ROOT)}:{waits}"


def test_no_comment_is_a_banner() -> None:
    """A module that needs them is two, or a class is."""
    banner = re.compile(r"^\s*#\s*([-=*#])\1\1")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in trees()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if banner.match(line)
    ]
    assert not found, found
