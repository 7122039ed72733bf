"""What docs/ARCHITECTURE.md and the glossary name is there, and defined there: modules, functions, files."""

import importlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "ARCHITECTURE.md"
GLOSSARY: Final = ROOT / "docs" / "glossary.md"
WAYS: Final = (
    "A record in",
    "A record out",
    "A take-over: a broker died",
    "A change of leader",
    "A planned move",
    "A Topic resource",
)
NAME: Final = re.compile(r"bmq(_[a-z]+)?(\.\w+)*(:\w+(\.\w+)*)?")
"""A package, a module or (behind a colon) something in it."""
PATH: Final = re.compile(r"[\w.-]*/[\w./-]*|\w+\.py")
NOT_MODULES: Final = frozenset(("bmq.validation", "bmq.pool", "bmq.lane.header"))
"""Keys of topics."""


def quoted(text: str) -> Iterator[str]:
    yield from re.findall(r"`([^`\n]+)`", text)


def why_not_there(name: str) -> str:
    """Empty where it is."""
    module, _, inside = name.partition(":")
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        above, _, last = module.rpartition(".")
        if inside or not above or not hasattr(importlib.import_module(above), last):
            return f"{name}: {error}"
        return ""
    for part in inside.split(".") if inside else ():
        if not hasattr(found, part):
            return f"{name}: {found!r} has no {part}"
        found = getattr(found, part)
    if inside and isinstance(found, type | FunctionType) and found.__module__ != module:
        return f"{name}: it is defined in {found.__module__}"
    return ""


def test_a_name_that_is_only_imported_there_is_found() -> None:
    assert "bmq.internal.remote.remote_owner" in why_not_there("bmq.internal:RemoteOwner")
    assert why_not_there("bmq.internal.remote.remote_owner:RemoteOwner") == ""


@pytest.fixture(scope="module")
def files() -> list[str]:
    found = []
    for folder, below, names in os.walk(ROOT):
        below[:] = [name for name in below if not name.startswith(".")]
        found += [(Path(folder) / name).relative_to(ROOT).as_posix() for name in names]
    return found


@pytest.mark.parametrize("page", [PAGE, GLOSSARY], ids=lambda page: page.stem)
def test_every_module_and_function_that_is_named_is_there(page: Path) -> None:
    names = [
        name
        for name in quoted(page.read_text())
        if NAME.fullmatch(name) and name not in NOT_MODULES and not name.startswith("bmq_spark")
    ]
    assert len(names) > 20
    assert [why for name in dict.fromkeys(names) if (why := why_not_there(name))] == []


@pytest.mark.parametrize("page", [PAGE, GLOSSARY], ids=lambda page: page.stem)
def test_every_file_and_folder_that_is_named_is_there(page: Path, files: list[str]) -> None:
    text = page.read_text()
    paths = [path.strip("/") for path in quoted(text) if PATH.fullmatch(path)]
    paths += [f"{name.replace('.', '/')}" for name in quoted(text) if name.startswith("bmq_spark")]
    assert [
        path
        for path in paths
        if not any(f"/{path}/" in f"/{file.removesuffix('.py')}/" or f"/{path}/" in f"/{file}/" for file in files)
    ] == []


@pytest.mark.parametrize("way", WAYS)
def test_each_way_is_a_list_whose_steps_say_where_they_are(way: str) -> None:
    [section] = [part for part in re.split(r"^##+ ", PAGE.read_text(), flags=re.MULTILINE) if part.startswith(way)]
    steps = re.findall(r"^\d+\. .*$", section, re.MULTILINE)
    assert len(steps) >= 3
    assert sum(":" in name for step in steps for name in quoted(step)) >= 3
