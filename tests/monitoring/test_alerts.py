"""The alerts: what raises each, what does not, and the page that says what to do."""

import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import typer
import yaml
from compat_server import ROOT
from dashboard_files import RULES, alerts
from prometheus_process import command

from bmq_cli.main import app

CASES: Final = Path(__file__).parent / "rules"
RUNBOOKS: Final = ROOT / "docs/runbooks"
ALERTS: Final = {rule["alert"]: rule for rules in alerts().values() for rule in rules}
SECTIONS: Final = ["Meaning", "Impact", "Diagnosis", "Remedy"]
NEVER, ALWAYS = "vector(0) > 1", "vector(1)"

every_alert = pytest.mark.parametrize("name", ALERTS)


def promtool(*arguments: str | Path) -> tuple[int, str]:
    done = subprocess.run(
        [command("promtool"), *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_the_rules_are_ones_that_prometheus_takes() -> None:
    code, said = promtool("check", "rules", *RULES.glob("*.yaml"))
    assert code == 0, said


def test_each_alert_fires_when_it_should_and_not_when_it_should_not() -> None:
    code, said = promtool("test", "rules", *CASES.glob("*.test.yaml"))
    assert code == 0, said


@pytest.mark.parametrize(
    ("expression", "missed"), [(NEVER, ' expr: "ALERTS{'), (ALWAYS, ' expr: "count_over_time(ALERTS{')]
)
def test_the_cases_of_an_alert_notice_one_that_never_fires_and_one_that_always_does(
    tmp_path: Path, expression: str, missed: str
) -> None:
    rules, cases = tmp_path / "charts/bmq/files/rules", tmp_path / "tests/monitoring/rules"
    rules.mkdir(parents=True)
    cases.mkdir(parents=True)
    for path in RULES.glob("*.yaml"):
        content = yaml.safe_load(path.read_text())
        for group in content["groups"]:
            group["rules"] = [
                {key: value for key, value in rule.items() if key != "for"} | {"expr": expression}
                for rule in group["rules"]
            ]
        (rules / path.name).write_text(yaml.safe_dump(content))
    for path in CASES.glob("*.test.yaml"):
        (cases / path.name).write_text(path.read_text())
    code, said = promtool("test", "rules", *cases.glob("*.test.yaml"))
    assert code != 0
    noticed = {
        matched
        for line in said.splitlines()
        if missed in line
        for matched in re.findall(r'alertname=\\"(\w+)\\"', line)
    }
    assert noticed == set(ALERTS)


@every_alert
def test_an_alert_says_how_bad_it_is_what_it_is_and_what_helps(name: str) -> None:
    rule: dict[str, Any] = ALERTS[name]
    assert re.fullmatch(r"Bmq[A-Za-z]+", name)
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert len(re.sub(r"\{\{[^}]*\}\}", "", rule["annotations"]["summary"])) < 90
    assert rule["annotations"]["description"].endswith((".", ")."))
    assert rule["annotations"]["runbook_url"] == f"docs/runbooks/{name}.md"


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    assert {path.stem for path in RUNBOOKS.glob("*.md")} == set(ALERTS)


@every_alert
def test_a_runbook_says_what_it_means_and_what_to_do_and_its_commands_and_links_are_there(name: str) -> None:
    text = (RUNBOOKS / f"{name}.md").read_text()
    assert text.startswith(f"# {name}\n")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS
    for section in re.split(r"^#+ .+$", text, flags=re.MULTILINE)[2:]:
        assert section.strip(), name
    for link in re.findall(r"\]\((\w+\.md)\)", text):
        assert (RUNBOOKS / link).exists(), link
    commands = commands_of(typer.main.get_command(app), "bmq")
    for line in re.findall(r"^    (bmq .+)$", text, re.MULTILINE) + re.findall(r"`(bmq [^`]+)`", text):
        words = line.split()
        depth = next(count for count in (4, 3, 2, 0) if " ".join(words[:count]) in commands or count == 0)
        assert depth, f"{name}: there is no command {line!r}"
        options = {word for word in words[depth:] if word.startswith("--")}
        assert options <= commands[" ".join(words[:depth])], line


def commands_of(group: Any, path: str) -> dict[str, set[str]]:
    """Every command with its options."""
    found: dict[str, set[str]] = {}
    context = group.make_context(path, [], resilient_parsing=True)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if hasattr(command, "list_commands"):
            found |= commands_of(command, f"{path} {name}")
        else:
            found[f"{path} {name}"] = {option for parameter in command.params for option in parameter.opts}
    return found
