"""Spark's own zips are not read again before every task; other zips are."""

import importlib
import sys
import zipfile
from pathlib import Path

import pytest

from bmq_spark.source.spark_zips import forget_importers


def zip_with(path: Path, name: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/__init__.py", "")
        archive.writestr(f"{name}/first.py", "NUMBER = 1")
        archive.writestr(f"{name}/second.py", "NUMBER = 2")
    return path


def test_importers_of_sparks_zips_are_forgotten_and_made_again_when_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_spark, of_user = (
        zip_with(tmp_path / "pyspark.zip", "zipped_spark"),
        zip_with(tmp_path / "user.zip", "zipped_user"),
    )
    monkeypatch.syspath_prepend(str(of_spark))
    monkeypatch.syspath_prepend(str(of_user))
    assert (
        importlib.import_module("zipped_spark.first").NUMBER == importlib.import_module("zipped_user.first").NUMBER == 1
    )
    forget_importers()
    kept = [path for path in sys.path_importer_cache if path.startswith(str(tmp_path))]
    assert kept
    assert not [path for path in kept if path.startswith(str(of_spark))]
    assert (
        importlib.import_module("zipped_spark.second").NUMBER
        == importlib.import_module("zipped_user.second").NUMBER
        == 2
    )
