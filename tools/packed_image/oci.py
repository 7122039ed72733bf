"""Images in OCI's layout: layers as uncompressed tars under their digests, a configuration, a manifest, and archives of
them.
"""

import hashlib
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from packed_image.contents import CACHE

_BLOBS: Final = CACHE / "blobs" / "sha256"
_UNTARRED: Final = ("./proc/*", "./sys/*", "./dev/*", "./run/*")
_MACHINES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image whose blobs are all in the cache."""

    name: str
    """Carries a digest of the content."""
    alias: str
    """What was packed or loaded last."""
    manifest: dict[str, Any]
    blobs: tuple[str, ...]


def image(
    repository: str, version: str, alias: str, *, layers: Sequence[Path], config: dict[str, Any], labels: dict[str, str]
) -> Image:
    """The image REPOSITORY:VERSION-DIGEST of these layers. The digest is of everything but the labels: they change with
    every commit.
    """
    digests = [_layer(folder) for folder in layers]
    known = json.dumps([digests, config], sort_keys=True)
    name = f"{repository}:{version}-{hashlib.sha256(known.encode()).hexdigest()[:12]}"
    described = {
        "architecture": _MACHINES[os.uname().machine],
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
        "config": config | {"Labels": labels},
    }
    config_blob = _blob(json.dumps(described, sort_keys=True).encode())
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": _descriptor("application/vnd.oci.image.config.v1+json", config_blob),
        "layers": [_descriptor("application/vnd.oci.image.layer.v1.tar", digest) for digest in digests],
    }
    manifest_blob = _blob(json.dumps(manifest, sort_keys=True).encode())
    blobs = (manifest_blob, config_blob, *digests)
    return Image(
        name=name,
        alias=f"{repository}:{alias}",
        manifest=_descriptor(manifest["mediaType"], manifest_blob),
        blobs=blobs,
    )


def archive(one: Image, file: Path, *, without: Collection[str] = ()) -> None:
    """Writes the image as an OCI archive, but for the blobs whose digests are in `without`. It is known there by both
    of its names.
    """
    entries = [one.manifest | {"annotations": _named(name)} for name in (one.name, one.alias)]
    with tarfile.open(file, "w") as tar:
        _add(tar, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        _add(tar, "index.json", json.dumps({"schemaVersion": 2, "manifests": entries}, sort_keys=True).encode())
        for blob in sorted(set(one.blobs)):
            if f"sha256:{blob}" not in without:
                with (_BLOBS / blob).open("rb") as content:
                    described = tarfile.TarInfo(f"blobs/sha256/{blob}")
                    described.size = (_BLOBS / blob).stat().st_size
                    tar.addfile(described, content)


def _named(name: str) -> dict[str, str]:
    return {
        "io.containerd.image.name": f"docker.io/library/{name}",
        "org.opencontainers.image.ref.name": name.split(":")[1],
    }


def forget(folder: Path) -> None:
    """Deletes the tar of a layer's folder."""
    known = _digest_file(folder)
    if known.is_file():
        (_BLOBS / known.read_text()).unlink(missing_ok=True)
        known.unlink()


def _layer(folder: Path) -> str:
    """The digest of a folder's tar: names, modes and owners as they are there, no times."""
    known = _digest_file(folder)
    if known.is_file() and (_BLOBS / known.read_text()).is_file():
        return known.read_text()
    _BLOBS.mkdir(parents=True, exist_ok=True)
    new = _BLOBS / f"{folder.name}.new"
    options = [
        "--sort=name",
        "--mtime=@0",
        "--numeric-owner",
        "--owner=0",
        "--group=0",
        "--format=gnu",
        *(f"--exclude={path}" for path in _UNTARRED),
    ]
    entries = sorted(path.name for path in folder.iterdir())
    subprocess.run(
        ["tar", "--create", "--file", new, "--directory", folder, *options, *(f"./{name}" for name in entries)],
        check=True,
    )
    with new.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    new.rename(_BLOBS / digest)
    known.write_text(digest)
    return digest


def _digest_file(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.digest")


def _blob(content: bytes) -> str:
    digest = hashlib.sha256(content).hexdigest()
    (_BLOBS / digest).write_bytes(content)
    return digest


def _descriptor(media_type: str, digest: str) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": (_BLOBS / digest).stat().st_size}


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    described = tarfile.TarInfo(name)
    described.size = len(content)
    tar.addfile(described, io.BytesIO(content))
