"""The parts of a run have every test once."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.parts import ROOT, of_part

PARTS = 3


class Item:
    def __init__(self, path: Path, number: int) -> None:
        self.path = path
        self.nodeid = f"{path}::{number}"


def of(*names: str) -> list[Any]:
    return [Item(ROOT / name, number) for name in names for number in range(10)]


def test_each_test_is_in_one_part_files_of_processes_whole_and_others_test_by_test() -> None:
    whole, single = of("tests/test_a.py", "tests/x/test_b.py", "spark-apps/tests/test_c.py"), of("sim/tests/test_d.py")
    found = [of_part(f"{part}/{PARTS}", whole + single) for part in range(PARTS)]
    assert Counter(item for here, _ in found for item in here) == Counter(whole + single)
    for here, others in found:
        assert {*here} | {*others} == {*whole, *single}
        assert len({item.path for item in here if item in whole}) == 1
        assert len([item for item in here if item in single]) in (3, 4)
        assert [item for item in whole + single if item in here] == here, "in their order"


@pytest.mark.parametrize("asked", ["3/3", "1", "-1/3", "a/b", "/", "1/0"])
def test_a_part_that_there_is_not_is_refused(asked: str) -> None:
    with pytest.raises(pytest.UsageError, match="write K/N"):
        of_part(asked, of("tests/test_a.py"))
