"""SPARK_HOME as the image has it, made of PyPI's pyspark and of further jars, without what no job of ours can use.

The standard library alone: spark-apps/Dockerfile runs this file by the image's own Python, and `tools/image` imports
it: both have the same files.
"""

import argparse
import re
import shutil
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_COMMANDS: Final = ("find-spark-home", "load-spark-env.sh", "spark-class", "spark-submit")
_PYTHON_LEFT_OUT: Final = ("bin", "data", "examples", "jars", "python", "sbin")
"""Of the package: scripts, jars and licences have their own places, and `python` is the package once more as a zip."""
_JARS_LEFT_OUT: Final = (
    *(
        "spark-connect",
        "spark-pipelines",
        "spark-hive",
        "spark-hive-thriftserver",
        "spark-mllib",
        "spark-mllib-local",
        "spark-graphx",
    ),
    *(
        "hive-beeline",
        "hive-cli",
        "hive-common",
        "hive-exec",
        "hive-jdbc",
        "hive-metastore",
        "hive-serde",
        "hive-service-rpc",
        "hive-shims",
    ),
    *(
        "hive-shims-common",
        "hive-shims-scheduler",
        "derby",
        "derbyshared",
        "derbytools",
        "HikariCP",
        "jdo-api",
        "javax.jdo",
    ),
    *(
        "datanucleus-api-jdo",
        "datanucleus-core",
        "datanucleus-rdbms",
        "algebra",
        "arpack",
        "arpack_combined_all",
        "blas",
        "breeze",
        "breeze-macros",
    ),
    *("cats-kernel", "JLargeArrays", "JTransforms", "lapack", "spire", "spire-macros", "spire-platform", "spire-util"),
)
"""MLlib and GraphX, Hive's metastore and server, Spark Connect's server, declarative pipelines. hive-storage-api stays:
ORC reads by it."""
_PACKAGES_LEFT_OUT: Final = (
    *("pandas/tests", "py4j/tests", "pyarrow/tests", "pyarrow/include"),
    *("pyarrow/_flight.*", "pyarrow/libarrow_flight*", "pyarrow/libarrow_python_flight*"),
    "bin",
)
JARS_NEEDED: Final = (
    *("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2"),
    *("hadoop-aws", "s3", "s3-transfer-manager", "sdk-core", "auth", "sts"),
    *("iceberg-spark-runtime", "sqlite-jdbc", "postgresql"),
)
"""Of those that come beside pyspark's own: without one of them jobs would only fail when they run."""
_PLATFORM: Final = re.compile(r"-(linux|osx|windows)-([a-z0-9_]+)\.jar$")
_NATIVE: Final = re.compile(r"\.(so|jnilib|dll)$")
_ROCKSDB: Final = "rocksdbjni-"
_MACHINES: Final = {"x86_64": ("x86_64", "linux64"), "aarch64": ("aarch_64", "linux-aarch64")}


def make(home: Path, *, pyspark: Path, jars: Iterable[Path], machine: str) -> None:
    """Fills the folder `home` from an installed pyspark (moved, not copied) and folders of jars, for a machine as
    `uname -m` names it.
    """
    netty, rocksdb = _MACHINES[machine]
    if missing := missing_jars(jars := list(jars)):
        sys.exit(
            f"no image without these jars: {', '.join(missing)}. Remove {' and '.join(map(str, jars))}, and run "
            "tools/get spark-jars iceberg-jars"
        )
    for name in ("bin", "jars", "python"):
        (home / name).mkdir(parents=True)
    for name in _COMMANDS:
        shutil.move(pyspark / "bin" / name, home / "bin" / name)
    shutil.move(pyspark / "licenses", home / "licenses")
    for jar in [*(pyspark / "jars").glob("*.jar"), *(jar for folder in jars for jar in folder.glob("*.jar"))]:
        platform = _PLATFORM.search(jar.name)
        if _artifact(jar) in _JARS_LEFT_OUT or (platform and platform.groups() != ("linux", netty)):
            continue
        if jar.name.startswith(_ROCKSDB):
            _without_other_machines(jar, home / "jars" / jar.name, keep=f"librocksdbjni-{rocksdb}.so")
        else:
            shutil.copyfile(jar, home / "jars" / jar.name)
    for name in _PYTHON_LEFT_OUT:
        shutil.rmtree(pyspark / name)
    for about in pyspark.parent.glob("pyspark-*.dist-info"):
        (about / "RECORD").unlink()  # it names the files where they were
        shutil.move(about, home / "python" / about.name)
    shutil.move(pyspark, home / "python" / "pyspark")


def missing_jars(folders: Iterable[Path]) -> list[str]:
    """What of `JARS_NEEDED` is not there, or is empty."""
    there = {_artifact(jar) for folder in folders for jar in folder.glob("*.jar") if jar.stat().st_size}
    return [name for name in JARS_NEEDED if name not in there]


def trim(packages: Path) -> None:
    """Removes what nothing imports from installed packages: their tests, C++ headers, Arrow Flight."""
    for pattern in _PACKAGES_LEFT_OUT:
        for found in list(packages.glob(pattern)):
            if found.is_dir():
                shutil.rmtree(found)
            else:
                found.unlink()


def _artifact(jar: Path) -> str:
    """`spark-sql` of spark-sql_2.13-4.1.2.jar: without versions."""
    return re.sub(r"(_2\.\d+)?-\d.*$", "", jar.name)


def _without_other_machines(jar: Path, smaller: Path, *, keep: str) -> None:
    """RocksDB's jar has its library for fourteen platforms: 70 MB for the 5 that are used. The library of this machine
    has to be among them.
    """
    with zipfile.ZipFile(jar) as all_of_it, zipfile.ZipFile(smaller, "w", zipfile.ZIP_DEFLATED) as kept:
        for entry in all_of_it.infolist():
            if entry.filename == keep or not _NATIVE.search(entry.filename):
                kept.writestr(entry, all_of_it.read(entry))
        if keep not in kept.namelist():
            sys.exit(f"{jar.name}: it has no {keep}")


def main() -> None:
    """Makes it where the arguments say."""
    parser = argparse.ArgumentParser()
    parser.add_argument("home", type=Path)
    parser.add_argument("--packages", type=Path, required=True, help="everything of the lock, pyspark among it")
    parser.add_argument("--jars", type=Path, nargs="+", required=True)
    parser.add_argument("--machine", required=True)
    arguments = parser.parse_args()
    make(arguments.home, pyspark=arguments.packages / "pyspark", jars=arguments.jars, machine=arguments.machine)
    trim(arguments.packages)


if __name__ == "__main__":
    main()
