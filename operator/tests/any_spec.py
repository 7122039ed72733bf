"""Specs at random, at the bounds of what a kind's schema takes: what an API server could hold."""

import re
from collections.abc import Mapping
from random import Random
from typing import Any, Final

TEXTS: Final = (
    *(
        "",
        "a",
        "0",
        "-",
        "a-b",
        "A_b.c",
        "a.b.c",
        "ü",
        "\u202e",
        "\n",
        " ",
        "a" * 63,
        "a" * 250,
        "9" * 20,
        "\u0663",
        "x=y",
        "{}",
        "%s",
        "{ordinal}",
        "$(POD_IP)",
    ),
    *(
        "[",
        "s3://[b",
        "s3://b?endpoint=http://h:port",
        "s3a://b/c",
        "http://[::1",
        "http://h:x",
        "jdbc:postgresql://h/d",
        "../x",
    ),
    *("@every 1h", "* * * * *", "1m", "30d", "128MiB", "500m", "1e9", "0.5"),
)
KEYS: Final = (
    *(one for one in TEXTS if one),
    "BMQ_A",
    "BMQ_STOP_TIMEOUT_MS",
    "spark.sql.shuffle.partitions",
    "cpu",
    "memory",
)
QUANTITIES: Final = (0, 1, -1, 2**62, "1", "500m", "1Gi", "0.5", "9" * 30)


def any_spec(
    schema: Mapping[str, Any], rng: Random, *, share: float, without: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """Fields of it, each with this probability."""
    return {
        name: _value(part, rng)
        for name, part in schema["properties"].items()
        if name not in without and rng.random() < share
    }


def _value(schema: Mapping[str, Any], rng: Random) -> Any:
    if "enum" in schema:
        return rng.choice(schema["enum"])
    if "x-kubernetes-int-or-string" in schema:
        return rng.choice(QUANTITIES)
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return rng.choice([{}, {"nodeAffinity": []}, {"a": {"b": None}}, {"type": "object"}])
    match schema["type"]:
        case "boolean":
            return rng.random() < 0.5
        case "integer":
            least, most = schema.get("minimum", -(2**62)), schema.get("maximum", 2**62)
            return rng.choice([least, most, rng.randint(least, most)])
        case "number":
            least, most = schema.get("minimum", -1e300), schema.get("maximum", 1e300)
            return rng.choice([float(least), float(most), rng.uniform(least, most)])
        case "string":
            return rng.choice([one for one in TEXTS if _fits(one, schema)] or [schema.get("default", "")])
        case "array":
            return [_value(schema["items"], rng) for _ in range(rng.choice([0, 1, 1, 2]))]
        case _ if "properties" in schema:
            return any_spec(schema, rng, share=0.3) | {
                name: _value(schema["properties"][name], rng) for name in schema.get("required", ())
            }
        case _:
            return {rng.choice(KEYS): _value(schema["additionalProperties"], rng) for _ in range(rng.choice([0, 1, 2]))}


def _fits(text: str, schema: Mapping[str, Any]) -> bool:
    bounds = schema.get("minLength", 0) <= len(text) <= schema.get("maxLength", 1 << 20)
    return bounds and re.search(re.sub(r"\$$", r"\\Z", schema.get("pattern", "")), text) is not None
