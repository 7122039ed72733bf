"""The Dockerfile and tools/image make the same image: the same base packages, files, user, environment, labels and
entry point.
"""

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from dockerfiles import Instructions, copied, only, stages_of

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from packed_image import contents, sbom  # noqa: E402 - tools/ is no package

CYCLONEDX = "cyclonedx-python-lib[json-validation]==11.7.0"
VALIDATED = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(sys.stdin.read())
sys.exit(str(problem) if problem else 0)
"""


@pytest.fixture(scope="module")
def stages() -> dict[str, Instructions]:
    """The Dockerfile's."""
    return stages_of(ROOT / "Dockerfile")


def test_both_run_the_same_as_the_same_user_in_the_same_environment(stages: dict[str, Instructions]) -> None:
    final = stages["final"]
    assert json.loads(only(final, "ENTRYPOINT")) == list(contents.ENTRYPOINT)
    assert only(final, "USER") == contents.USER
    assert only(final, "WORKDIR") == contents.WORKDIR
    assert dict(part.split("=", 1) for part in shlex.split(only(final, "ENV"))) == contents.ENVIRONMENT
    assert not [argument for instruction, argument in final if instruction in ("CMD", "VOLUME", "EXPOSE")]


def test_both_have_the_same_labels(stages: dict[str, Instructions]) -> None:
    written = dict(part.split("=", 1) for part in shlex.split(only(stages["final"], "LABEL")))
    filled = written | {
        "org.opencontainers.image.version": contents.version(),
        "org.opencontainers.image.revision": contents.revision(),
    }
    assert filled == contents.labels()


def test_both_have_the_same_debian_packages_and_user(stages: dict[str, Instructions]) -> None:
    installed = re.search(r"--no-install-recommends ([^&]+?) &&", only(stages["base"], "RUN"))
    assert installed
    assert tuple(installed[1].split()) == contents.DEBIAN_PACKAGES
    assert f"bmq:x:{contents.USER}:bmq:/tmp:/usr/sbin/nologin" in only(stages["base"], "RUN")


def test_both_have_the_same_files(stages: dict[str, Instructions]) -> None:
    from_build = [part[1:] for part in copied(stages["final"]) if part[0] == "--from=build"]
    assert from_build == [
        [folder, folder] for folder in (contents.DEPENDENCIES_FOLDER, contents.PACKAGES_FOLDER, contents.ABOUT_FOLDER)
    ]
    from_here = [part for part in copied(stages["final"]) if part[0] != "--from=build"]
    assert from_here == [
        ["LICENSE", f"{contents.ABOUT_FOLDER}/{contents.LICENSE.name}"],
        [str(contents.ADDED_FILES.relative_to(ROOT)), "/"],
    ]
    members = [part[0] for part in copied(stages["build"]) if part[0] == part[1]]
    assert tuple(members) == contents.MEMBERS
    runs = [argument for instruction, argument in stages["build"] if instruction == "RUN"]
    assert any(
        f"--target {contents.DEPENDENCIES_FOLDER} --require-hashes" in run and contents.RUNTIME_LOCK.name in run
        for run in runs
    )
    assert any(f"--target {contents.PACKAGES_FOLDER} ./{' ./'.join(contents.MEMBERS)} " in run for run in runs)
    assert any(f">{contents.ABOUT_FOLDER}/{contents.SBOM_NAME}" in run for run in runs)


def test_what_is_copied_is_not_ignored(stages: dict[str, Instructions]) -> None:
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    sources = [part[0] for stage in stages.values() for part in copied(stage) if not part[0].startswith("--")]
    assert sources
    assert not [source for source in sources if not any(Path(source).is_relative_to(one) for one in allowed)]


def test_every_member_of_the_workspace_is_in_the_image_but_the_simulator_and_what_has_one_of_its_own() -> None:
    workspace = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"]["workspace"]["members"]
    members = {
        str(found.relative_to(ROOT))
        for pattern in workspace
        for found in ROOT.glob(pattern)
        if (found / "pyproject.toml").is_file()
    }
    assert members - {"sim", "spark-apps"} == set(contents.MEMBERS)


def test_the_image_has_what_the_tests_ran_with_and_no_test_tools() -> None:
    def locked(file: str) -> dict[str, str]:
        return dict(re.findall(r"^([a-z0-9._-]+)(?:\[.*?\])?==([^ ;]+)", (ROOT / file).read_text(), flags=re.M))

    everything, runtime = locked("requirements.lock"), locked("requirements-runtime.lock")
    assert runtime
    assert runtime.items() <= everything.items(), "run: make lock"
    assert not runtime.keys() & {"pytest", "mypy", "ruff", "hypothesis", "aiokafka", "kafka-python"}
    wanted = {"kio", "obstore", "kopf", "kubernetes", "typer", "fastapi", "confluent-kafka"}
    assert wanted <= runtime.keys()


def test_the_bill_of_materials_is_valid_and_names_what_is_installed(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "os-release").write_text('NAME="Debian"\nVERSION_ID="12"\n')
    (tmp_path / "var" / "lib" / "dpkg").mkdir(parents=True)
    status = (
        "Package: libc6\nStatus: install ok installed\nArchitecture: amd64\nVersion: "
        "2.36-9+deb12u1\nDescription: x\n y: z\n\n"
    )
    (tmp_path / "var" / "lib" / "dpkg" / "status").write_text(
        status + "Package: gone\nStatus: deinstall ok config-files\n"
    )
    here = next(Path(one) for one in sys.path if one.endswith("site-packages"))
    bill = sbom.bill(version="1.2.3", python=[here], debian=tmp_path)
    names = {one["purl"] for one in bill["components"]}
    assert "pkg:deb/debian/libc6@2.36-9%2Bdeb12u1?arch=amd64&distro=debian-12" in names
    assert not [name for name in names if "gone" in name]
    assert any(name.startswith("pkg:pypi/pydantic-core@") for name in names)
    assert bill == sbom.bill(version="1.2.3", python=[here], debian=tmp_path)
    checked = [
        contents.UV,
        "run",
        "--quiet",
        "--no-project",
        "--python",
        sys.executable,
        "--with",
        CYCLONEDX,
        "python",
        "-c",
        VALIDATED,
    ]
    done = subprocess.run(checked, input=json.dumps(bill), capture_output=True, text=True, check=False, cwd=tmp_path)
    assert not done.returncode, done.stderr
