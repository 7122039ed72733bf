"""Helm over the chart, without a cluster."""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "bmq"
HELM = Path(os.environ.get("TOOLS", ROOT / ".cache" / "tools")) / "helm"
KUBERNETES = "1.35.0"

Values = Mapping[str, Any]


class HelmRefused(Exception):
    """What Helm said instead of doing it."""


def helm(
    *arguments: str, values: Values | None = None, environment: Mapping[str, str] | None = None, timeout_s: float = 300
) -> str:
    """Standard output. Values go by a file. Raises HelmRefused."""
    if not HELM.is_file():
        subprocess.run([ROOT / "tools" / "get", "helm"], check=True)
    line = [str(HELM), *arguments, *(["--values", "-"] if values is not None else [])]
    given = json.dumps(values) if values is not None else None
    done = subprocess.run(
        line,
        input=given,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **(environment or {})},
        timeout=timeout_s,
    )
    if done.returncode:
        raise HelmRefused(f"helm {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def rendered(
    values: Values | None = None, *, release: str = "queue", namespace: str = "here", chart: Path = CHART
) -> str:
    """`helm template`."""
    return helm(
        "template", release, str(chart), "--namespace", namespace, "--kube-version", KUBERNETES, values=values or {}
    )


def objects(text: str) -> list[dict[str, Any]]:
    """The objects of rendered templates."""
    return [one for one in yaml.load_all(text, yaml.CSafeLoader) if one]


def of_kind(kind: str, values: Values | None = None) -> list[dict[str, Any]]:
    """The rendered objects of a kind."""
    return [one for one in objects(rendered(values)) if one["kind"] == kind]
