"""The folders that become layers: Debian, the dependencies, bmq's own packages. Each is made once for what it is made
of.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from packed_image import contents, oci, sbom
from packed_image.contents import CACHE, ROOT

_PLATFORM: Final = f"{os.uname().machine}-manylinux_2_36"


class Unpackable(Exception):
    """Something is missing that the image cannot be packed without. The message says what and how it is had."""


def localkube() -> Path:
    """The localkube command. Raises Unpackable."""
    command = Path(os.environ.get("LOCALKUBE", ROOT / ".." / "shared" / "tools" / "localkube" / "localkube")).resolve()
    if not command.is_file():
        raise Unpackable(f"{command} is missing: name localkube by LOCALKUBE, or build the Dockerfile with Docker")
    return command


def base() -> Path:
    """Debian with Python and the user that the image runs as."""
    return debian("base", contents.DEBIAN_PACKAGES, user="bmq", number=contents.USER_ID)


def debian(name: str, packages: Sequence[str], *, user: str, number: int) -> Path:
    """Debian with these packages, and a user with a group of the same name and number."""

    def make(folder: Path) -> None:
        folder.rmdir()
        command = [localkube(), "rootfs", folder, *packages]
        subprocess.run(
            command,
            check=True,
            env=os.environ | {"LOCALKUBE_DIR": os.environ.get("LOCALKUBE_DIR", str(ROOT / ".cache" / "localkube"))},
        )
        for file, line in (
            ("passwd", f"{user}:x:{number}:{number}:{user}:/tmp:/usr/sbin/nologin"),
            ("group", f"{user}:x:{number}:"),
        ):
            with (folder / "etc" / file).open("a") as end:
                end.write(line + "\n")

    return made(name, contents.digest_of(recipe=f"1 {tuple(packages)} {number}:{number}"), make)


def dependencies(debian: Path) -> Path:
    """What requirements-runtime.lock names, for the Python of the base."""

    def make(folder: Path) -> None:
        target = folder / contents.DEPENDENCIES_FOLDER.lstrip("/")
        install(
            debian, target, ["--require-hashes", "--only-binary", ":all:", "--requirements", str(contents.RUNTIME_LOCK)]
        )
        compiled(debian, folder)

    return made("dependencies", contents.digest_of(contents.RUNTIME_LOCK, recipe=f"1 {python_of(debian)}"), make)


def packages(debian: Path, dependencies_folder: Path) -> Path:
    """bmq's own packages and commands, its licence and the bill of materials."""
    members = [ROOT / member for member in contents.MEMBERS]
    sources = [path for member in members for path in (member / "pyproject.toml", member / "src")]

    def make(folder: Path) -> None:
        target = folder / contents.PACKAGES_FOLDER.lstrip("/")
        install_members(debian, target, members)
        compiled(debian, folder)
        shutil.copytree(contents.ADDED_FILES, folder, dirs_exist_ok=True)
        about = folder / contents.ABOUT_FOLDER.lstrip("/")
        about.mkdir(parents=True)
        shutil.copy(contents.LICENSE, about)
        installed = dependencies_folder / contents.DEPENDENCIES_FOLDER.lstrip("/")
        bill = sbom.bill(version=contents.version(), python=[installed], debian=debian)
        (about / contents.SBOM_NAME).write_text(json.dumps(bill, indent=1, sort_keys=True) + "\n")

    recipe = f"2 {debian.name} {dependencies_folder.name} {contents.version()}"
    return made("packages", contents.digest_of(*sources, contents.ADDED_FILES, contents.LICENSE, recipe=recipe), make)


def minio(binary: Path) -> Path:
    """MinIO alone: it is one static program."""

    def make(folder: Path) -> None:
        for name in ("usr/bin", "tmp", "data", "etc/ssl/certs"):
            (folder / name).mkdir(parents=True)
        (folder / "tmp").chmod(0o1777)
        (folder / "data").chmod(0o777)
        shutil.copy(binary, folder / "usr" / "bin" / "minio")
        (folder / "etc" / "passwd").write_text(
            "root:x:0:0:root:/tmp:/sbin/nologin\nminio:x:1000:1000:minio:/tmp:/sbin/nologin\n"
        )

    return made("minio", contents.digest_of(recipe=f"1 {binary.stat().st_size}"), make)


def made(name: str, digest: str, make: Callable[[Path], None]) -> Path:
    """The folder of this name and digest; `make` fills it when it is not there. Folders of other digests go."""
    folder = CACHE / f"{name}-{digest}"
    if not folder.is_dir():
        new = CACHE / f"{name}.new"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        make(new)
        new.rename(folder)
        for old in CACHE.glob(f"{name}-{'[0-9a-f]' * contents.DIGEST_LENGTH}"):
            if old != folder and old.is_dir():
                oci.forget(old)
                shutil.rmtree(old)
    return folder


def python_of(debian: Path) -> str:
    """The version of the base's Python, as 3.11."""
    return (debian / "usr" / "bin" / "python3").readlink().name.removeprefix("python")


def install(debian: Path, target: Path, what: list[str]) -> None:
    """Installs Python packages into a folder, for the Python of the base."""
    command = [contents.UV, "pip", "install", "--quiet", "--no-deps", "--link-mode", "copy", "--target", target]
    platform = ["--python-version", python_of(debian), "--python-platform", _PLATFORM]
    subprocess.run([*command, *platform, *what], check=True, cwd=ROOT)


def install_members(debian: Path, target: Path, members: Sequence[Path]) -> None:
    """Installs packages of the workspace, and removes what names this machine's folders."""
    install(debian, target, ["--no-sources", *map(str, members)])
    for trace in [*target.rglob("direct_url.json"), *target.rglob("uv_cache.json"), target / "bin", target / ".lock"]:
        shutil.rmtree(trace) if trace.is_dir() else trace.unlink(missing_ok=True)
    for record in target.rglob("*.dist-info/RECORD"):
        lines = record.read_text().splitlines(keepends=True)
        record.write_text(
            "".join(line for line in lines if "direct_url.json" not in line and "uv_cache.json" not in line)
        )


def compiled(debian: Path, folder: Path) -> None:
    """Compiles by the base's own Python. Checked by nothing: a file's time is none of what a layer keeps, and nobody
    can write there.
    """
    library = next((debian / "usr" / "lib").glob("*-linux-gnu"))
    loader = next(library.glob("ld-linux-*.so.*"))
    python = [loader, "--library-path", library, debian / "usr" / "bin" / f"python{python_of(debian)}"]
    options = [
        "-m",
        "compileall",
        "-q",
        "-j",
        "0",
        "--invalidation-mode",
        "unchecked-hash",
        "-s",
        str(folder),
        "-p",
        "/",
    ]
    subprocess.run(
        [*python, *options, folder / "opt"],
        check=True,
        env={"PYTHONHOME": str(debian / "usr"), "PATH": os.environ["PATH"]},
    )
