"""Which statements of the services no seed ever ran: those of their functions, less those whose lines were seen.

What runs when a module is imported is not counted.
"""

import ast
import copy
import importlib.util
import pkgutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from slipcover import ImportManager, Slipcover

PACKAGES: Final = ("bmq.metadata", "bmq.storage", "bmq_broker", "bmq_controller", "bmq_proxy")
MODULES: Final = (
    "bmq_node.alone",
    "bmq_node.member",
    "bmq_node.node",
    "bmq_node.process.living",
    "bmq_node.membership",
    "bmq_node.owners",
    "bmq_node.current_owner",
    "bmq_node.configuration.node_settings",
)
"""What is watched: the roles, what is stored, and what puts a node together."""

TEXT_CHARS_MAX: Final = 140
Lines = dict[str, set[int]]
"""Numbers of lines, by module."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Statement:
    """One statement of a function, or the head of a compound one. `text`: its code, however its lines are broken."""

    module: str
    number: int
    end: int
    function: str
    text: str

    def __str__(self) -> str:
        return f"{self.module}:{self.number} {self.function}: {self.text}"


class Watch:
    """Notes which lines of the watched modules run in this process, and in those that it forks: of modules that are
    imported while it is `importing`.
    """

    def __init__(self) -> None:
        self._covered = Slipcover(exclude_lines=[])
        self._modules = {str(path): name for name, path in watched_modules().items()}

    @contextmanager
    def importing(self) -> Iterator[None]:
        """While the watched modules are imported, which were not before."""
        early = [name for name, path in watched_modules().items() if name in sys.modules and path.name != "__init__.py"]
        assert not early, f"imported too early to be watched: {early}"
        with ImportManager(self._covered, self):
            yield

    def matches(self, file: str) -> bool:
        """Whether it is a watched module's."""
        return file in self._modules

    def ran(self) -> Lines:
        """The lines that ran so far."""
        files = self._covered.get_coverage()["files"]
        return {self._modules[str(Path(file).absolute())]: set(of["executed_lines"]) for file, of in files.items()}


def merged(into: Lines, more: Mapping[str, set[int]]) -> None:
    """Adds."""
    for module, numbers in more.items():
        into.setdefault(module, set()).update(numbers)


def unrun(ran: Mapping[str, set[int]]) -> list[Statement]:
    """Statements of which no line ran, in order."""
    return [
        statement
        for module, path in sorted(watched_modules().items())
        for statement in statements(module, path)
        if not any(number in ran.get(module, ()) for number in range(statement.number, statement.end + 1))
    ]


def count() -> int:
    """Statements of the watched modules."""
    return sum(len(statements(module, path)) for module, path in watched_modules().items())


@cache
def watched_modules() -> Mapping[str, Path]:
    """Their files, by name."""
    found = {}
    for name in (*PACKAGES, *MODULES):
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.origin is not None
        found[name] = Path(spec.origin)
        for module in pkgutil.walk_packages(spec.submodule_search_locations or [], f"{name}."):
            inner = importlib.util.find_spec(module.name)
            assert inner is not None and inner.origin is not None
            found[module.name] = Path(inner.origin)
    return found


@cache
def statements(module: str, path: Path) -> tuple[Statement, ...]:
    """Those of all functions, methods and what is nested in them."""

    def walk(node: ast.AST, function: str, *, inside: bool) -> Iterator[Statement]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{function}.{child.name}" if function else child.name
                yield from walk(child, name, inside=not isinstance(child, ast.ClassDef))
            elif isinstance(child, ast.stmt):
                if inside and not _is_nothing(child):
                    yield Statement(
                        module=module,
                        number=child.lineno,
                        end=_head_end(child),
                        function=function,
                        text=_text_of(child),
                    )
                yield from walk(child, function, inside=inside)
            elif isinstance(child, ast.ExceptHandler | ast.match_case):
                yield from walk(child, function, inside=inside)

    return tuple(walk(ast.parse(path.read_text()), "", inside=False))


def _text_of(statement: ast.stmt) -> str:
    """In one line, without what stands below a compound one; of a long one the beginning."""
    head = copy.copy(statement)
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        if hasattr(head, field):
            setattr(head, field, [ast.Pass()] if field == "body" else [])
    text = ast.unparse(head).splitlines()[0]
    return text if len(text) <= TEXT_CHARS_MAX else f"{text[:TEXT_CHARS_MAX]}…"


def _head_end(node: ast.stmt) -> int:
    """The last line of a simple statement, or of what stands before the body of a compound one."""
    body = getattr(node, "body", None) or getattr(node, "cases", None)
    if not body:
        return node.end_lineno or node.lineno
    first = body[0].pattern if isinstance(body[0], ast.match_case) else body[0]
    return max(node.lineno, int(first.lineno) - 1)


def _is_nothing(node: ast.stmt) -> bool:
    """What makes no code, or none that stands in a line of its own."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    return isinstance(node, ast.Pass | ast.Global | ast.Nonlocal | ast.Import | ast.ImportFrom | ast.Try)
