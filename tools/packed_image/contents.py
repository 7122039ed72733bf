"""What is in the images: names, paths, user, environment and labels. The Dockerfile says the same, and a test compares
the two.
"""

import hashlib
import os
import subprocess
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
CACHE: Final = ROOT / ".cache" / "image"
UV: Final = Path(os.environ.get("UV", ROOT / ".cache" / "uv" / "bin" / "uv"))

DEBIAN_PACKAGES: Final = ("python3", "ca-certificates")
RUNTIME_LOCK: Final = ROOT / "requirements-runtime.lock"
MEMBERS: Final = (
    "core",
    "admin",
    "resources",
    "audit",
    "backup",
    "services/controller",
    "services/broker",
    "services/proxy",
    "node",
    "databus",
    "cli",
    "operator",
)
ADDED_FILES: Final = ROOT / "tools" / "rootfs"
LICENSE: Final = ROOT / "LICENSE"

DEPENDENCIES_FOLDER: Final = "/opt/bmq/dependencies"
PACKAGES_FOLDER: Final = "/opt/bmq/packages"
ABOUT_FOLDER: Final = "/usr/share/doc/bmq"
SBOM_NAME: Final = "sbom.cdx.json"
USER_ID: Final = 10001
USER: Final = f"{USER_ID}:{USER_ID}"
WORKDIR: Final = "/tmp"
ENTRYPOINT: Final = ("bmq",)
DIGEST_LENGTH: Final = 16
ENVIRONMENT: Final = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "PYTHONPATH": f"{PACKAGES_FOLDER}:{DEPENDENCIES_FOLDER}",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
    "HOME": "/tmp",
}


def version() -> str:
    """bmq's version."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def revision() -> str:
    """The commit that is checked out, or `unknown` outside of a checkout."""
    found = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def labels(
    title: str = "bmq",
    description: str = "A message queue that speaks the Kafka protocol and keeps its data in object storage",
) -> dict[str, str]:
    """The labels that say where an image is from."""
    return {
        "org.opencontainers.image.title": title,
        "org.opencontainers.image.description": description,
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.version": version(),
        "org.opencontainers.image.revision": revision(),
    }


def digest_of(*paths: Path, recipe: str) -> str:
    """A digest of files, and of all files below folders, by name, mode and content; and of the recipe: its number grows
    with what is done to them.
    """
    digest = hashlib.sha256(recipe.encode())
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and "__pycache__" not in file.parts:
                content = hashlib.sha256(file.read_bytes()).hexdigest()
                digest.update(f"{file.relative_to(ROOT)} {file.stat().st_mode & 0o111} {content}\n".encode())
    return digest.hexdigest()[:DIGEST_LENGTH]
