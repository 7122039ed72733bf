"""A package of the workspace is named wherever all are: who adds one learns here where."""

import re
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[1]
ELSEWHERE: Final = {"spark-apps"}
"""Has an environment, checks and tests of its own."""
NOT_SHIPPED: Final = {"sim"} | ELSEWHERE


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def members() -> set[str]:
    patterns = project()["tool"]["uv"]["workspace"]["members"]
    return {folder.relative_to(ROOT).as_posix() for pattern in patterns for folder in ROOT.glob(pattern)}


def packages() -> dict[str, str]:
    """What each member is imported as."""
    found = {}
    for member in members():
        [path] = tomllib.loads((ROOT / member / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"][
            "wheel"
        ]["packages"]
        found[member] = path.removeprefix("src/")
    return found


def of_make(variable: str) -> set[str]:
    found = re.search(rf"^{variable} := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert found
    return set(found[1].split())


def test_every_folder_with_a_project_is_a_member() -> None:
    projects = {path.parent.relative_to(ROOT).as_posix() for path in ROOT.glob("*/pyproject.toml")}
    projects |= {path.parent.relative_to(ROOT).as_posix() for path in ROOT.glob("services/*/pyproject.toml")}
    assert projects == members()


def test_make_installs_every_member_and_runs_its_tests() -> None:
    assert of_make("MEMBERS") == members() - ELSEWHERE
    assert of_make("UNIT_TESTS") == {f"{member}/tests" for member in members() - ELSEWHERE}


@pytest.mark.parametrize("member", sorted(members()))
def test_a_member_has_what_tools_look_for(member: str) -> None:
    package = ROOT / member / "src" / packages()[member]
    assert (package / "__init__.py").is_file()
    assert any((ROOT / member / "tests").glob("test_*.py"))


def test_no_two_modules_of_tests_have_one_name() -> None:
    """pytest imports them all into one process, by their names alone: a second one of a name ends the whole run."""
    seen: dict[str, list[str]] = {}
    for folder in project()["tool"]["pytest"]["ini_options"]["testpaths"]:
        for path in (ROOT / folder).rglob("*.py"):
            if path.name not in {"conftest.py", "__init__.py"} and not (path.parent / "__init__.py").exists():
                seen.setdefault(path.name, []).append(path.relative_to(ROOT).as_posix())
    assert {name: paths for name, paths in seen.items() if len(paths) > 1} == {}


def test_lint_types_tests_and_contracts_know_every_member() -> None:
    tools = project()["tool"]
    sources = {f"{member}/src" for member in members()}
    assert sources == set(tools["ruff"]["src"])
    assert sources - {f"{one}/src" for one in ELSEWHERE} <= set(tools["mypy"]["files"])
    assert sources - {f"{one}/src" for one in ELSEWHERE} <= set(tools["mypy"]["mypy_path"])
    assert {f"{member}/tests" for member in members() - ELSEWHERE} < set(tools["pytest"]["ini_options"]["testpaths"])
    contracts = tools["importlinter"]
    assert set(contracts["root_packages"]) == set(packages().values())
    assert set(contract("circles")["ancestors"]) == set(packages().values())
    assert set(contract("sim")["source_modules"]) | {"bmq_sim"} == set(packages().values()), "it is imported by nobody"


def contract(name: str) -> dict[str, Any]:
    [found] = [one for one in project()["tool"]["importlinter"]["contracts"] if one["id"] == name]
    return found


def test_contracts_that_name_packages_name_all_that_they_are_about() -> None:
    """What a new package may not do, it may not because it was forgotten here either."""
    every = set(packages().values())
    services = {package for member, package in packages().items() if member.startswith("services/")}
    commands, asked_by_rest = {"bmq_cli", "bmq_operator", "bmq_databus"}, {"bmq", "bmq_admin", "bmq_resources"}
    assert set(contract("services")["modules"]) == services
    assert {one for layer in contract("floors")["layers"] for one in layer.split(" | ")} == every - {
        "bmq_sim",
        "bmq_spark",
    }
    assert {one for one in contract("runtime")["source_modules"] if "." not in one} == every - commands - {
        "bmq",
        "bmq_spark",
    }
    core = {path.name for path in (ROOT / "core/src/bmq").iterdir() if (path / "__init__.py").is_file()}
    assert {one for one in contract("runtime")["source_modules"] if "." in one} == {
        f"bmq.{name}" for name in core - {"runtime"}
    }
    assert set(contract("operator")["forbidden_modules"]) == every - asked_by_rest - {
        "bmq_operator",
        "bmq_sim",
        "bmq_spark",
    }
    assert set(contract("apart")["source_modules"]) == services | {"bmq_node"}
    assert set(contract("apart")["forbidden_modules"]) == every - services - commands - {
        "bmq",
        "bmq_node",
        "bmq_sim",
        "bmq_spark",
    }
    assert set(contract("asking")["source_modules"]) == every - {"bmq_admin", "bmq_spark"}


def test_every_package_has_layers() -> None:
    layered = {
        container
        for one in project()["tool"]["importlinter"]["contracts"]
        if one["type"] == "layers" and one.get("exhaustive")
        for container in one["containers"]
    }
    assert set(packages().values()) <= layered


def test_every_machine_of_a_service_is_held_to_be_pure() -> None:
    [pure] = [one for one in project()["tool"]["importlinter"]["contracts"] if one["id"] == "pure"]
    machines = set()
    for source in (ROOT / "services").glob("*/src"):
        for path in (*source.rglob("machine.py"), *source.rglob("machine/__init__.py")):
            machines.add(".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__"))
    assert len(machines) >= 2
    held = tuple(f"{one}." for one in pure["source_modules"])
    assert {one for one in machines if not f"{one}.".startswith(held)} == set()


def test_the_image_has_every_member_that_is_shipped() -> None:
    copied = set(re.findall(r"^COPY (\S+) \1$", (ROOT / "Dockerfile").read_text(), re.MULTILINE))
    assert members() - NOT_SHIPPED <= copied
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {member.partition("/")[0] for member in members() - NOT_SHIPPED} <= {
        line.removeprefix("!") for line in ignored if line.startswith("!")
    }


def test_make_writes_every_page_that_is_written_by_a_program() -> None:
    [recipe] = re.findall(r"^generated:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    pages = {
        f"docs/{page.name}"
        for page in (ROOT / "docs").glob("*.md")
        if re.search(r"^<!-- Written by `(python|make generated)", page.read_text(), re.MULTILINE)
    }
    assert len(pages) >= 7
    assert pages <= set(re.findall(r">(docs/\S+)", recipe))
