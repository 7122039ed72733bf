"""`-p tests.parts --part K/N`: one part of what is collected, as all of it takes longer than a change can wait. The
parts of one N have every test once.
"""

from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
WHOLE: Final = ("tests", "spark-apps")
"""Where the tests of a file share what takes long to start: such a file is in one part."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--part`."""
    parser.addoption("--part", metavar="K/N", help="of every N tests, or files, each K-th, from 0 on")


@pytest.hookimpl(trylast=True)  # of what -m leaves
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the part."""
    asked = config.getoption("--part")
    if asked is None:
        return
    items[:], others = of_part(asked, items)
    config.hook.pytest_deselected(items=others)


def of_part(asked: str, items: list[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Those that are in it, and the others. Raises UsageError."""
    part, slash, parts = asked.partition("/")
    if not (slash and part.isdecimal() and parts.isdecimal() and int(part) < int(parts)):
        raise pytest.UsageError(f"--part {asked!r}: write K/N, with K from 0 to N - 1")
    files = sorted({item.path for item in items if _is_whole(item)})
    tests = sorted(item.nodeid for item in items if not _is_whole(item))
    here = {*files[int(part) :: int(parts)], *tests[int(part) :: int(parts)]}
    there = [item for item in items if (item.path if _is_whole(item) else item.nodeid) not in here]
    others = set(there)
    return [item for item in items if item not in others], there


def _is_whole(item: pytest.Item) -> bool:
    return item.path.relative_to(ROOT).parts[0] in WHOLE
