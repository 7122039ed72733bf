"""The examples in examples/databus do what they say, in each language."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from compat_server import ROOT, Bmq, tool, tools_folder
from databus_process import CHANNELS, Databus

EXAMPLES = ROOT / "examples" / "databus"
ENDS_WITHIN_S = 180


@pytest.fixture
def url(bmq: Bmq, databus: Databus) -> Iterator[str]:
    bmq.start()
    databus.start()
    yield f"http://{databus.address}"


@pytest.fixture
def grpc_address(bmq: Bmq, tmp_path: Path) -> Iterator[str]:
    bmq.start()
    databus = Databus(bmq.servers, CHANNELS, tmp_path, options=["--grpc-listen", "127.0.0.1:0"])
    databus.start()
    try:
        yield databus.grpc_address
    finally:
        databus.stop()


def run(*command: str | Path, folder: Path) -> str:
    environment = {**os.environ, "GOCACHE": str(folder / "go-cache"), "GOFLAGS": "-mod=mod"}
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=ENDS_WITHIN_S,
        cwd=folder,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_python(url: str, tmp_path: Path) -> None:
    printed = run(sys.executable, EXAMPLES / "write.py", url, folder=tmp_path)
    assert printed.splitlines() == ["written to partition 0 at offset 0", "1000 written", "1000 written"]


def test_go(url: str, tmp_path: Path) -> None:
    tool("get", "go")
    local = tools_folder() / "go" / "bin" / "go"
    printed = run(local if local.exists() else "go", "run", EXAMPLES / "write.go", url, folder=tmp_path)
    assert printed.splitlines() == [f"written to partition 0 at offset {offset}" for offset in (0, 1)]


def test_java(url: str, tmp_path: Path) -> None:
    tool("get", "java-client")
    compiler = [shutil.which("javac")] if shutil.which("javac") else _eclipses(tools_folder() / "java-client")
    run(*compiler, "-d", tmp_path / "classes", EXAMPLES / "Write.java", folder=tmp_path)
    printed = run(tools_folder() / "java-client" / "java", "-cp", tmp_path / "classes", "Write", url, folder=tmp_path)
    assert printed.count('"status":200') == 2


def test_python_by_grpc(grpc_address: str, tmp_path: Path) -> None:
    printed = run(sys.executable, EXAMPLES / "write_grpc.py", grpc_address, folder=tmp_path)
    assert printed.splitlines() == [
        *(f"written to partition 0 at offset {offset}" for offset in (0, 1)),
        "1000 written",
    ]


def test_go_by_grpc(grpc_address: str, tmp_path: Path) -> None:
    tool("get", "go")
    local = tools_folder() / "go" / "bin" / "go"
    go = local if local.exists() else "go"
    made = shutil.copytree(EXAMPLES / "grpc-go", tmp_path / "grpc-go")
    shutil.copy(ROOT / "databus" / "src" / "bmq_databus" / "v1" / "databus.proto", made)
    plugins = ("google.golang.org/protobuf/cmd/protoc-gen-go", "google.golang.org/grpc/cmd/protoc-gen-go-grpc")
    run(go, "build", "-o", "bin/", *plugins, folder=made)
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", "."]
    for kind in ("go", "go-grpc"):
        command += [f"--plugin=protoc-gen-{kind}=bin/protoc-gen-{kind}", f"--{kind}_out=."]
        command += [f"--{kind}_opt=module=example/orders", f"--{kind}_opt=Mdatabus.proto=example/orders/databusv1"]
    run(*command, "databus.proto", folder=made)
    printed = run(go, "run", ".", grpc_address, folder=made)
    assert printed.splitlines() == [
        *(f"written to partition 0 at offset {offset}" for offset in (0, 1)),
        "1000 written",
    ]


def _eclipses(folder: Path) -> list[str | Path]:
    [compiler] = folder.glob("ecj-*.jar")
    return [folder / "java", "-jar", compiler, "--release", "17"]
