"""Every field of a spec, from its model's schema, with what somebody may write there one after the other: set, more,
less, changed, taken away.
"""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from bmq_resources.schema import structural

TEXTS: dict[str, tuple[str, str]] = {
    # Where a pattern, or what a rule says, allows no plain word.
    "advertisedHost": ("a.example", "b.example"),
    "bootstrapServers": ("one:9092", "two:9092"),
    "bucket": ("bucket-a", "bucket-b"),
    "catalogUri": ("http://catalog:8181", "http://other:8181"),
    "field": ("$.a", "$.b"),
    "remove": ("$.a", "$.b"),
    "replace": ("$.a", "$.b"),
    "checkpoint": ("s3a://c/a", "s3a://c/b"),
    "endpoint": ("http://minio:9000", "http://other:9000"),
    "output": ("s3a://o/a", "s3a://o/b"),
    "registry": ("http://registry:8081", "http://other:8081"),
    "retention": ("30d", "60d"),
    "schedule": ("5 * * * *", "6 * * * *"),
    "sourceRanges": ("10.0.0.0/8", "192.168.0.0/16"),
    "table": ("one.two.three", "one.two.four"),
    "targetFileSize": ("64MiB", "32MiB"),
    "timeZone": ("Europe/Berlin", "Europe/Paris"),
    "trigger": ("2m", "3m"),
    "uri": ("s3a://b/one.avsc", "s3a://b/two.avsc"),
    "url": ("s3://bucket-a", "s3://bucket-b"),
    "warehouse": ("s3a://w/a", "s3a://w/b"),
} | dict.fromkeys(("olderThan", "vacuumOlderThan"), ("2h", "3h"))
MEMORIES = ("768m", "2g")
NUMBERS = {"nodePort": (30100, 30200)}
ALONG: dict[str, dict[str, Any]] = {"tolerationSeconds": {"effect": "NoExecute"}}
"""What a field of a list's item needs beside it."""
KEYS: dict[str, tuple[tuple[str, str], tuple[str, str]]] = {
    # Of maps: a key and its value, twice.
    "config": (("num.partitions", "3"), ("auto.create.topics.enable", "false")),
    "consumerConfig": (("fetch.min.bytes", "2"), ("fetch.max.bytes", "4000")),
    "requests": (("cpu", "30m"), ("memory", "100Mi")),
    "limits": (("cpu", "1500m"), ("memory", "3Gi")),
    "sparkConf": (("spark.sql.shuffle.partitions", "3"), ("spark.sql.files.maxPartitionBytes", "1m")),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A field and what it is, one after the other; None: it is not there. `within`: a field of a list's items, which
    are what stands at `path`.
    """

    path: str
    stages: tuple[Any, ...]
    within: str = ""

    def specs(self, base: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The base with each."""
        return [_with(base, self.path.split("."), stage) for stage in self.stages]


def fields_of(spec: type[BaseModel]) -> list[Written]:
    """All of them, each by itself."""
    return [one for one in _fields(structural(spec), "") if one.path]


def _fields(schema: dict[str, Any], path: str) -> Iterator[Written]:
    name = path.rpartition(".")[2].removesuffix("[]")
    if "properties" in schema:
        for inner, part in schema["properties"].items():
            yield from _fields(part, f"{path}.{inner}" if path else inner)
    elif schema.get("type") == "array" and "properties" in schema["items"]:
        yield from _of_items(schema["items"], path)
    else:
        one, other = _values(schema, name)
        if schema.get("type") == "array":
            yield Written(path=path, stages=(None, [one, other], [one], [other], None))
        elif isinstance(one, dict):
            yield Written(path=path, stages=(None, one | other, one, other, None))
        else:
            yield Written(
                path=path,
                stages=(None, one, None) if isinstance(one, bool) or one == other else (None, one, other, None),
            )


def _of_items(schema: dict[str, Any], path: str) -> Iterator[Written]:
    """A list of parts: one and another, and each field of one."""
    named = next(one for one in ("name", "topic", "key") if one in schema["properties"])
    required = {named: "one"}
    ports = {"port": 9095} if "port" in schema["properties"] else {}
    first = dict(required)
    second = {named: "two", **ports}
    yield Written(path=path, stages=(None, [first, second], [first], [second], None))
    for field, part in schema["properties"].items():
        if field == named:
            continue
        for inner in _fields(part, field):
            least = first | ALONG.get(field, {})
            stages = [dict(least) if stage is None else least | {field: stage} for stage in inner.stages]
            yield Written(path=path, within=inner.path, stages=(None, *([one] for one in stages), None))


def _values(schema: dict[str, Any], name: str) -> tuple[Any, Any]:
    """Two that are not the default."""
    if "additionalProperties" in schema:
        (key, value), (other, more) = KEYS.get(name, (("BMQ_A", "1"), ("BMQ_B", "2")))
        return {key: value}, {other: more}
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return _affinity("a"), _affinity("b")
    if schema.get("type") == "boolean":
        return not schema["default"], schema["default"]
    default = schema.get("default")
    if choices := schema.get("enum"):
        rest = [one for one in choices if one not in (default, "")] or choices
        return rest[0], rest[-1]
    if name in NUMBERS:
        return NUMBERS[name]
    if schema.get("type") == "integer":
        least, most = max(schema.get("minimum", 0), (default or 0) + 2), schema.get("maximum", 1 << 30)
        return (least, least + 1) if least < most else (default - 2, default - 1)
    if schema.get("type") == "number":
        return 2.0, 3.0
    if "x-kubernetes-int-or-string" in schema:
        return "2Gi", "3Gi"
    if name in ("memory", "memoryOverhead"):
        return MEMORIES
    if name in ("coreRequest", "coreLimit"):
        return "500m", "700m"
    item = schema.get("items", schema)
    return TEXTS.get(name, ("aaa", "bbb")) if item.get("type") == "string" else (1, 2)


def _affinity(value: str) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": "pool", "operator": "In", "values": [value]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def _with(base: Mapping[str, Any], path: list[str], value: Any) -> dict[str, Any]:
    spec = copy.deepcopy(dict(base))
    if value is None:
        return spec
    at = spec
    for name in path[:-1]:
        at = at.setdefault(name, {})
    at[path[-1]] = value
    return spec
