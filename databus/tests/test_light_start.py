"""What a sidecar loads at its start."""

import subprocess
import sys


def test_libraries_for_control_planes_grpc_and_schemas_are_loaded_where_these_are_asked_for_alone() -> None:
    later = {"httpx", "grpc", "google.protobuf", "jsonschema_rs"}
    asks = f"import sys, bmq_databus.serving; print(sorted({later} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", asks], capture_output=True, text=True, check=True)
    assert loaded.stdout == "[]\n"
