"""What a process imports shows in its metrics and in how long it takes to start: a probe is no node."""

import subprocess
import sys

import pytest

SERVICES = ("bmq_broker", "bmq_controller", "bmq_proxy")


@pytest.mark.parametrize("module", ["bmq_cli.probe.commands", "bmq_cli.store.opening", "bmq_cli.kafka.connection"])
def test_what_is_no_node_imports_no_service(module: str) -> None:
    script = f"import sys, {module}; print(*(name for name in sys.modules if name.split('.')[0] in {SERVICES!r}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
