"""`kubectl bmq` as its users have it: one file in PATH, beside kubectl."""

import json
import os
import subprocess
import tarfile
from pathlib import Path

from e2e_running import Running

PLUGIN = Path(__file__).parents[2] / "kubectl"


def plugin(running: Running, *arguments: str, fails: bool = False) -> str:
    """What `kubectl bmq` prints."""
    path = f"{PLUGIN}:{running.kubectl.command.parent}:{os.environ['PATH']}"
    line = [str(running.kubectl.command), "bmq", "-n", running.release.namespace, *arguments]
    done = subprocess.run(
        line,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=running.kubectl.environment | {"PATH": path},
        stdin=subprocess.DEVNULL,
    )
    assert (done.returncode != 0) == fails, done.stderr
    return done.stderr if fails else done.stdout


def test_status_shows_what_kubernetes_and_the_cluster_say(running: Running) -> None:
    shown = plugin(running, "status")
    assert "brokers: 2 of 2 ready, 2 up to date" in shown
    assert "Ready: True" in shown
    assert "alive, leads" in shown


def test_topics_and_groups_are_those_of_the_cluster(running: Running) -> None:
    running.topic("plugged", partitions=2)
    assert "plugged" in plugin(running, "topics")
    assert json.loads(plugin(running, "topics", "describe", "plugged", "-o", "json"))
    plugin(running, "groups")


def test_a_pod_is_drained_and_taken_back(running: Running) -> None:
    assert "holds no partitions" in plugin(running, "drain", "bmq-broker-0")
    assert "uncordoned" in plugin(running, "drain", "bmq-broker-0", "--undo")


def test_a_report_has_everything_but_secrets(running: Running, tmp_path: Path) -> None:
    file = tmp_path / "report.tar.gz"
    plugin(running, "report", "-f", str(file))
    with tarfile.open(file) as archive:
        parts = {one.name: archive.extractfile(one).read() for one in archive.getmembers()}  # type: ignore[union-attr]
    assert {
        "resources.json",
        "objects.json",
        "pods.json",
        "events.txt",
        "debug-bundle.tar.gz",
        "logs/bmq-controller-0.log",
    } <= set(parts)
    assert not [name for name in parts if name.endswith(".missing.txt")]
    secret = running.kubectl.json("get", "secret/bmq-auth")["data"]
    assert not [name for name, content in parts.items() if any(value.encode() in content for value in secret.values())]


def test_what_is_not_there_is_named(running: Running) -> None:
    assert "no-such-pod" in plugin(running, "drain", "no-such-pod", fails=True)
    assert "name a pod" in plugin(running, "drain", fails=True)
    assert "not found" in plugin(running, "--cluster", "other", "status", fails=True)
