"""An image's bill of materials in CycloneDX: bmq, the Python packages, the Debian packages, the jars.

The standard library alone: the Dockerfiles run this file by the image's own Python.
"""

import argparse
import json
import uuid
import zipfile
from collections.abc import Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any, Final

_NAMESPACE: Final = uuid.UUID("6b1d2a53-8a53-4c3b-9d0f-5d8a1a0a6e0b")
_LICENSE_LENGTH_MAX: Final = 100


def bill(*, version: str, python: Sequence[Path], debian: Path, jars: Path | None = None) -> dict[str, Any]:
    """The document for folders of installed Python packages, a Debian root and a folder of jars. The same contents give
    the same document.
    """
    components = [_python(one) for one in distributions(path=[str(folder) for folder in python])] + _debian(debian)
    components += [_jar(one) for one in sorted(jars.glob("*.jar"))] if jars else []
    components.sort(key=lambda one: str(one["bom-ref"]))
    bmq = {
        "type": "application",
        "bom-ref": "bmq",
        "name": "bmq",
        "version": version,
        "licenses": [{"license": {"id": "Apache-2.0"}}],
    }
    serial = uuid.uuid5(_NAMESPACE, json.dumps([bmq, components], sort_keys=True))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"component": bmq},
        "components": components,
        "dependencies": [{"ref": "bmq", "dependsOn": [one["bom-ref"] for one in components]}],
    }


def _python(distribution: Distribution) -> dict[str, Any]:
    name, version = distribution.metadata["Name"], distribution.version
    purl = f"pkg:pypi/{name.lower().replace('_', '-')}@{version}"
    found: dict[str, Any] = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    if expression := distribution.metadata.get("License-Expression"):
        found["licenses"] = [{"expression": expression}]
    elif (
        (named := distribution.metadata.get("License", "")) and len(named) <= _LICENSE_LENGTH_MAX and "\n" not in named
    ):
        found["licenses"] = [{"license": {"name": named}}]
    return found


def _debian(root: Path) -> list[dict[str, Any]]:
    release = dict(line.split("=", 1) for line in (root / "etc" / "os-release").read_text().splitlines() if "=" in line)
    distribution = f"debian-{release['VERSION_ID'].strip(chr(34))}"
    found = []
    for paragraph in (root / "var" / "lib" / "dpkg" / "status").read_text().split("\n\n"):
        fields = dict(
            line.split(": ", 1) for line in paragraph.splitlines() if ": " in line and not line.startswith(" ")
        )
        if fields.get("Status", "").endswith(" installed"):
            version = fields["Version"].replace("+", "%2B").replace(":", "%3A")
            package = fields["Package"].replace("+", "%2B")
            purl = f"pkg:deb/debian/{package}@{version}?arch={fields['Architecture']}&distro={distribution}"
            found.append(
                {
                    "type": "library",
                    "bom-ref": purl,
                    "name": fields["Package"],
                    "version": fields["Version"],
                    "purl": purl,
                }
            )
    return found


def _jar(jar: Path) -> dict[str, Any]:
    """By the coordinates that Maven wrote into it, if it did."""
    with zipfile.ZipFile(jar) as content:
        written = [
            name
            for name in content.namelist()
            if name.startswith("META-INF/maven/") and name.endswith("/pom.properties")
        ]
        for name in written:
            lines = content.read(name).decode(errors="replace").splitlines()
            maven = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
            if jar.stem.startswith(f"{maven.get('artifactId')}-{maven.get('version')}"):
                purl = f"pkg:maven/{maven['groupId']}/{maven['artifactId']}@{maven['version']}"
                return {
                    "type": "library",
                    "bom-ref": f"{purl}#{jar.name}",
                    "name": maven["artifactId"],
                    "version": maven["version"],
                    "purl": purl,
                }
    purl = f"pkg:generic/{jar.stem}"
    return {"type": "library", "bom-ref": purl, "name": jar.stem, "purl": purl}


def main() -> None:
    """Prints the document."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--version", required=True)
    parser.add_argument("--python", type=Path, nargs="+", required=True)
    parser.add_argument("--debian", type=Path, required=True)
    parser.add_argument("--jars", type=Path)
    arguments = parser.parse_args()
    found = bill(version=arguments.version, python=arguments.python, debian=arguments.debian, jars=arguments.jars)
    print(json.dumps(found, indent=1, sort_keys=True))


if __name__ == "__main__":
    main()
