"""The image of the Spark jobs: what is in it, and its layers. spark-apps/Dockerfile makes the same, and a test compares
the two.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from packed_image import contents, layers, oci, sbom, spark_home
from packed_image.contents import CACHE, ROOT

DEBIAN_PACKAGES: Final = ("python3", "ca-certificates", "openjdk-17-jre-headless", "procps", "tini")
LOCK: Final = ROOT / "requirements-spark-runtime.lock"
JARS: Final = ("spark-jars", "iceberg-jars")
MEMBERS: Final = ("core", "spark-apps")
APPLICATIONS: Final = ROOT / "spark-apps"
ADDED_FILES: Final = APPLICATIONS / "rootfs"

SPARK_HOME: Final = "/opt/spark"
APPLICATIONS_FOLDER: Final = "/opt/bmq/spark-apps"
USER_ID: Final = 185
"""Spark's own images have this one, and so do the examples of the Spark Operator."""
USER: Final = f"{USER_ID}:{USER_ID}"
WORKDIR: Final = "/tmp"
ENTRYPOINT: Final = ("bmq-spark",)
ENVIRONMENT: Final = {
    "PATH": "/opt/spark/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "SPARK_HOME": SPARK_HOME,
    "PYSPARK_PYTHON": "python3",
    "PYTHONPATH": f"{contents.PACKAGES_FOLDER}:{contents.DEPENDENCIES_FOLDER}:{SPARK_HOME}/python",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
    "HOME": "/tmp",
}
TITLE: Final = "bmq-spark"
DESCRIPTION: Final = "Spark with bmq's jobs: topics as Parquet and Iceberg tables"

_OPERATOR_BINARY: Final = "/usr/bin/spark-operator"


def image() -> oci.Image:
    """The product: `tools/image spark`."""
    debian, spark = _debian(), _spark_home()
    dependencies = _dependencies(debian)
    packages = _packages(debian, spark, dependencies)
    labels = contents.labels(TITLE, DESCRIPTION)
    version = contents.version()
    shutil.copy(packages / contents.ABOUT_FOLDER.lstrip("/") / contents.SBOM_NAME, CACHE / "bmq-spark.cdx.json")
    return oci.image(
        TITLE,
        version,
        f"{version}-dev",
        layers=(debian, spark, dependencies, packages),
        config=_config(list(ENTRYPOINT)),
        labels=labels,
    )


def operator_image() -> oci.Image:
    """The Spark Operator of .cache/tools over the same Spark, which it submits by: for tests."""
    subprocess.run([ROOT / "tools" / "get", "spark-operator"], check=True)
    binary = ROOT / ".cache" / "tools" / "spark-operator"

    def make(folder: Path) -> None:
        target = folder / _OPERATOR_BINARY.lstrip("/")
        target.parent.mkdir(parents=True)
        shutil.copy(binary, target)
        serving = folder / "etc" / "k8s-webhook-server" / "serving-certs"
        serving.mkdir(parents=True)
        serving.chmod(0o777)

    operator = layers.made("spark-operator", contents.digest_of(recipe=f"1 {binary.stat().st_size}"), make)
    labels = {"org.opencontainers.image.title": "the Spark Operator for tests"}
    config = _config(["tini", "-s", "--", _OPERATOR_BINARY])
    return oci.image(
        "bmq-spark-operator", "test", "test", layers=(_debian(), _spark_home(), operator), config=config, labels=labels
    )


def _config(entry_point: list[str]) -> dict[str, object]:
    environment = [f"{name}={value}" for name, value in ENVIRONMENT.items()]
    return {"User": USER, "WorkingDir": WORKDIR, "Entrypoint": entry_point, "Env": environment}


def _debian() -> Path:
    return layers.debian("spark-base", DEBIAN_PACKAGES, user="spark", number=USER_ID)


def _spark_home() -> Path:
    """PyPI's pyspark as SPARK_HOME, with the jars for Kafka, S3A and Iceberg."""
    subprocess.run([ROOT / "tools" / "get", *JARS], check=True)
    jars = [ROOT / ".cache" / "tools" / name for name in JARS]
    debian, wanted = _debian(), locked(pyspark=True)

    def make(folder: Path) -> None:
        unpacked = folder / "unpacked"
        layers.install(debian, unpacked, ["--require-hashes", "--requirements", str(_file("spark-home.lock", wanted))])
        home = folder / SPARK_HOME.lstrip("/")
        spark_home.make(home, pyspark=unpacked / "pyspark", jars=jars, machine=os.uname().machine)
        shutil.rmtree(unpacked)
        layers.compiled(debian, folder)

    named = sorted(jar.name for folder in jars for jar in folder.glob("*.jar"))
    return layers.made(
        "spark-home", contents.digest_of(Path(spark_home.__file__), recipe=f"1 {debian.name} {wanted} {named}"), make
    )


def _dependencies(debian: Path) -> Path:
    """What the lock names beside pyspark."""
    wanted = locked(pyspark=False)

    def make(folder: Path) -> None:
        target = folder / contents.DEPENDENCIES_FOLDER.lstrip("/")
        what = [
            "--require-hashes",
            "--only-binary",
            ":all:",
            "--requirements",
            str(_file("spark-dependencies.lock", wanted)),
        ]
        layers.install(debian, target, what)
        spark_home.trim(target)
        layers.compiled(debian, folder)

    recipe = f"1 {debian.name} {wanted}"
    return layers.made("spark-dependencies", contents.digest_of(Path(spark_home.__file__), recipe=recipe), make)


def _packages(debian: Path, spark: Path, dependencies: Path) -> Path:
    """The jobs: bmq's own packages, what spark-submit is told to run, the entry point, the licence and the bill of
    materials.
    """
    members = [ROOT / member for member in MEMBERS]
    sources = [path for member in members for path in (member / "pyproject.toml", member / "src")]
    applications = sorted(APPLICATIONS.glob("*.py"))

    def make(folder: Path) -> None:
        layers.install_members(debian, folder / contents.PACKAGES_FOLDER.lstrip("/"), members)
        target = folder / APPLICATIONS_FOLDER.lstrip("/")
        target.mkdir()
        for application in applications:
            shutil.copyfile(application, target / application.name)
        layers.compiled(debian, folder)
        shutil.copytree(ADDED_FILES, folder, dirs_exist_ok=True)
        about = folder / contents.ABOUT_FOLDER.lstrip("/")
        about.mkdir(parents=True)
        shutil.copy(contents.LICENSE, about)
        home = spark / SPARK_HOME.lstrip("/")
        python = [dependencies / contents.DEPENDENCIES_FOLDER.lstrip("/"), home / "python"]
        bill = sbom.bill(version=contents.version(), python=python, debian=debian, jars=home / "jars")
        (about / contents.SBOM_NAME).write_text(json.dumps(bill, indent=1, sort_keys=True) + "\n")

    recipe = f"1 {debian.name} {spark.name} {dependencies.name} {contents.version()}"
    return layers.made(
        "spark-packages",
        contents.digest_of(*sources, *applications, ADDED_FILES, contents.LICENSE, recipe=recipe),
        make,
    )


def locked(*, pyspark: bool) -> str:
    """The part of the lock that names pyspark, or all of the rest."""
    entries = re.split(r"^(?=[a-z0-9])", LOCK.read_text(), flags=re.M)
    return "".join(entry for entry in entries if entry.startswith("pyspark==") == pyspark)


def _file(name: str, text: str) -> Path:
    file = CACHE / name
    file.write_text(text)
    return file
