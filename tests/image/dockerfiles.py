"""Dockerfiles as their stages and instructions."""

import re
import shlex
from pathlib import Path

Instructions = tuple[tuple[str, str], ...]


def stages_of(dockerfile: Path) -> dict[str, Instructions]:
    """The stages by name, the last one as `final`: instructions with their arguments on one line."""
    text = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", dockerfile.read_text(), flags=re.M))
    found: dict[str, list[tuple[str, str]]] = {}
    for line in filter(None, (line.strip() for line in text.splitlines())):
        instruction, _, argument = line.partition(" ")
        if instruction == "FROM":
            name = argument.split(" AS ")[1] if " AS " in argument else "final"
            found[name] = []
        found[name].append((instruction, " ".join(argument.split())))
    return {name: tuple(lines) for name, lines in found.items()}


def only(instructions: Instructions, name: str) -> str:
    """The argument of the one instruction of this name."""
    (argument,) = (argument for instruction, argument in instructions if instruction == name)
    return argument


def copied(instructions: Instructions) -> list[list[str]]:
    """The arguments of COPY."""
    return [shlex.split(argument) for instruction, argument in instructions if instruction == "COPY"]
