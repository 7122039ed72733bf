"""The examples are what the models take."""

from pathlib import Path

import pytest
import yaml

from bmq.resources import KINDS

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))
BY_KIND = {kind.__name__: kind for kind in KINDS}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_a_resource(path: Path) -> None:
    for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
        BY_KIND[document["kind"]].model_validate(document)


def test_there_is_an_example_of_every_kind() -> None:
    kinds = {document["kind"] for path in EXAMPLES for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))}

    assert kinds == set(BY_KIND)
