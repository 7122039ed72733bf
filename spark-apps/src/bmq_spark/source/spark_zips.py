"""Sparing Spark's Python workers needless work before every task. Owns nothing else.

Each time a worker calls `importlib.invalidate_caches`. Up to Python 3.11 that reads the directory of `pyspark.zip`
anew, once for each of its packages in use: 0.15 s of a processor, more than decoding 64 MiB takes (Python 3.12 reads it
when it is needed, gh-103200).
"""

import sys
from pathlib import PurePath
from typing import Final
from zipimport import zipimporter

_OF_SPARK: Final = ("pyspark.zip", "py4j-*.zip")


def forget_importers() -> None:
    """Drops the cached importers of Spark's own zips, which never change. The next import from them makes a new one, of
    a directory that is kept.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter) and any(PurePath(finder.archive).match(name) for name in _OF_SPARK):
            sys.path_importer_cache.pop(path, None)
