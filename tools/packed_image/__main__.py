"""`tools/image`: packs an image, loads it, prints its name."""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from packed_image import contents, layers, oci, spark
from packed_image.contents import CACHE, ROOT

_MINIO_ENTRYPOINT: Final = "/usr/bin/minio"


def main() -> None:
    """Packs what the arguments name."""
    parser = argparse.ArgumentParser(prog="tools/image", add_help=True)
    parser.add_argument("what", choices=tuple(_IMAGES))
    parser.add_argument("--load", choices=("localkube", "kind", "none"), default="none", help="where to load it")
    arguments = parser.parse_args()
    try:
        CACHE.mkdir(parents=True, exist_ok=True)
        packed = _IMAGES[arguments.what]()
        _LOADERS[arguments.load](packed)
    except layers.Unpackable as problem:
        sys.exit(f"tools/image: {problem}")
    print(packed.name)


def _bmq() -> oci.Image:
    debian = layers.base()
    dependencies = layers.dependencies(debian)
    packages = layers.packages(debian, dependencies)
    config = {
        "User": contents.USER,
        "WorkingDir": contents.WORKDIR,
        "Entrypoint": list(contents.ENTRYPOINT),
        "Env": [f"{name}={value}" for name, value in contents.ENVIRONMENT.items()],
    }
    packed = oci.image(
        "bmq",
        contents.version(),
        f"{contents.version()}-dev",
        layers=(debian, dependencies, packages),
        config=config,
        labels=contents.labels(),
    )
    shutil.copy(packages / contents.ABOUT_FOLDER.lstrip("/") / contents.SBOM_NAME, CACHE / "bmq.cdx.json")
    return packed


def _minio() -> oci.Image:
    subprocess.run([ROOT / "tools" / "get", "minio"], check=True)
    folder = layers.minio(ROOT / ".cache" / "tools" / "minio")
    config = {"Entrypoint": [_MINIO_ENTRYPOINT], "WorkingDir": "/", "Env": ["PATH=/usr/bin", "HOME=/tmp"]}
    return oci.image(
        "bmq-minio",
        "test",
        "test",
        layers=[folder],
        config=config,
        labels={"org.opencontainers.image.title": "MinIO for tests"},
    )


def _archive_of(packed: oci.Image) -> Path:
    return CACHE / f"{packed.name.split(':')[0]}.tar"


def _archive_only(packed: oci.Image) -> None:
    oci.archive(packed, _archive_of(packed))


def _into_localkube(packed: oci.Image) -> None:
    """Hands over what containerd lacks, once."""
    command = [str(layers.localkube())]
    environment = os.environ | {"LOCALKUBE_DIR": os.environ.get("LOCALKUBE_DIR", str(ROOT / ".cache" / "localkube"))}

    def asked(*arguments: str) -> list[str]:
        return subprocess.run(
            [*command, *arguments], check=True, env=environment, capture_output=True, text=True
        ).stdout.split()

    if f"docker.io/library/{packed.name}" in asked("ctr", "images", "list", "--quiet"):
        asked(
            "ctr", "images", "tag", "--force", f"docker.io/library/{packed.name}", f"docker.io/library/{packed.alias}"
        )
        return
    file = _archive_of(packed).with_suffix(".part")
    try:
        oci.archive(packed, file, without=asked("ctr", "content", "list", "--quiet"))
        asked("load", str(file))
    finally:
        file.unlink(missing_ok=True)


def _into_kind(packed: oci.Image) -> None:
    file = _archive_of(packed)
    oci.archive(packed, file)
    cluster = os.environ.get("KIND_CLUSTER", "kind")
    subprocess.run(["kind", "load", "image-archive", str(file), "--name", cluster], check=True)


_IMAGES: Final = {"bmq": _bmq, "minio": _minio, "spark": spark.image, "spark-operator": spark.operator_image}
_LOADERS: Final = {"none": _archive_only, "localkube": _into_localkube, "kind": _into_kind}

main()
