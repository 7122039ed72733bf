"""What the API server would refuse of a document, found without one: types and bounds, unknown fields, and the rules of
`x-kubernetes-validations`.

Rules are written in CEL, once, in the models. Each that needs no old object has its twin here, under the very same
text; a test holds the two sets to each other. Pure.
"""

import difflib
import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from bmq.errors import InvalidTopicName
from bmq.naming.names import check_topic_name
from bmq_resources.affinity import AS_KUBERNETES, CHARS_MAX, DEPTH_MAX, PARTS_MAX, with_affinity
from bmq_resources.base import Resource
from bmq_resources.channel import TARGETS_RULE, Channel
from bmq_resources.channel_rules import LANE_RULE, LEAST_RATE_RULE, ONE_KEY_RULE, RATE_RULE, REDACT_RULE
from bmq_resources.cluster import HOST_TOLD_RULE, Cluster
from bmq_resources.lane import LANE_NAME, QUOTA_RATES_RULE, QUOTA_STORAGE_RULE, Lane
from bmq_resources.pods import OPERATORS_OWN_ENV, OPERATORS_OWN_ENV_RULE, TEXT_CHARS_MAX
from bmq_resources.schema import structural_part
from bmq_resources.tables import CONSUMER_NAMES_RULE, JOBS_OWN, JOBS_OWN_RULE
from bmq_resources.texts import RESOURCE_NAME_CHARS_MAX, RESOURCE_NAMES_RULE
from bmq_resources.topic import Topic
from bmq_resources.uris import FILE_RULE, FOLDER_RULE, HTTP_RULE

_VALUE_LENGTH_SHOWN: Final = 60
_META: Final = {
    "type": "object",
    "additionalProperties": {"type": "object", "additionalProperties": {"type": "string"}},
}
"""Kubernetes takes a null of any field of metadata for none."""
_STORE_URL: Final = re.compile(r"(s3|gs|az)://[^/?]+")
_HOST_TOLD: Final = re.compile(r"([a-zA-Z0-9._:-]|[{]ordinal[}]|[{]hostname[}])+")

RULES: Final[Mapping[str, Callable[[Any], bool]]] = {
    "(self.url != '') != self.minio.embedded": lambda it: (it["url"] != "") != it["minio"]["embedded"],
    "self == '' || self.matches('^(s3|gs|az)://[^/?]+')": lambda it: it == "" or _STORE_URL.match(it) is not None,
    "self.minReplicas <= self.maxReplicas": lambda it: it["minReplicas"] <= it["maxReplicas"],
    "self.all(one, self.exists_one(other, other.port == one.port))": lambda it: (
        len({one["port"] for one in it}) == len(it)
    ),
    "self.all(one, !(one.port in [9080, 9092, 9190]))": lambda it: all(
        one["port"] not in (9080, 9092, 9190) for one in it
    ),
    "self.name != 'internal'": lambda it: it["name"] != "internal",
    "self.type == 'NodePort' || self.nodePort == 0": lambda it: it["type"] == "NodePort" or it["nodePort"] == 0,
    HOST_TOLD_RULE: lambda it: it == "" or (_HOST_TOLD.fullmatch(it) is not None and it not in ("0.0.0.0", "::")),
    "self.all(name, name.startsWith('BMQ_'))": lambda it: all(name.startswith("BMQ_") for name in it),
    f"!self.exists(name, name in {list(OPERATORS_OWN_ENV)})": frozenset(OPERATORS_OWN_ENV).isdisjoint,
    OPERATORS_OWN_ENV_RULE: lambda it: all(one["name"] not in OPERATORS_OWN_ENV for one in it),
    "self.matches('^[a-zA-Z0-9._-]*$') && self != '.' && self != '..'": lambda it: (
        re.fullmatch(r"[a-zA-Z0-9._-]*", it) is not None and it not in (".", "..")
    ),
    "!self.startsWith('__')": lambda it: not it.startswith("__"),
    FOLDER_RULE: lambda it: it == "" or re.fullmatch(r"s3a?://[^/?#]+(/[^?#]*)?", it) is not None,
    FILE_RULE: lambda it: it == "" or re.fullmatch(r"s3a?://[^/?#]+/[^?#]+", it) is not None,
    HTTP_RULE: lambda it: it == "" or re.match(r"https?://[^/?#]+", it) is not None,
    "(self.text != '' ? 1 : 0) + (self.configMapKeyRef.name != '' ? 1 : 0) + (self.uri != '' ? 1 : 0) == 1": lambda it: (  # noqa: E501
        [it["text"], it["configMapKeyRef"]["name"], it["uri"]].count("") == 2
    ),
    "self.catalogType == 'rest' || self.warehouse != ''": lambda it: (
        it["catalogType"] == "rest" or it["warehouse"] != ""
    ),
    "self.catalogType != 'rest' || self.catalogUri.matches('^https?://[^/?#]+')": lambda it: (
        it["catalogType"] != "rest" or re.match(r"https?://[^/?#]+", it["catalogUri"]) is not None
    ),
    "self.catalogType != 'sql' || self.catalogUri.startsWith('jdbc:')": lambda it: (
        it["catalogType"] != "sql" or it["catalogUri"].startswith("jdbc:")
    ),
    "self.catalogType != 'hadoop' || self.catalogUri == ''": lambda it: (
        it["catalogType"] != "hadoop" or it["catalogUri"] == ""
    ),
    "!self.startsWith('spark_catalog.')": lambda it: not it.startswith("spark_catalog."),
    "(self.output != '') != has(self.iceberg)": lambda it: (it["output"] != "") != ("iceberg" in it),
    "(self.schedule != '') != has(self.continuous)": lambda it: (it["schedule"] != "") != ("continuous" in it),
    "!(self.format in ['avro', 'protobuf']) || has(self.schema) || self.registry != ''": lambda it: (
        it["format"] not in ("avro", "protobuf") or "schema" in it or it["registry"] != ""
    ),
    "!(self.format in ['bytes', 'string']) || !has(self.schema) && self.registry == ''": lambda it: (
        it["format"] not in ("bytes", "string") or ("schema" not in it and it["registry"] == "")
    ),
    "self.message == '' || self.format == 'protobuf'": lambda it: it["message"] == "" or it["format"] == "protobuf",
    "self.format != 'json' || self.registry == ''": lambda it: it["format"] != "json" or it["registry"] == "",
    "!has(self.iceberg) || self.retention == '' || (self.iceberg.upsertKey == '' && self.partitionBy != 'none')": lambda it: (  # noqa: E501
        "iceberg" not in it
        or it["retention"] == ""
        or (it["iceberg"]["upsertKey"] == "" and it["partitionBy"] != "none")
    ),
    "!has(self.iceberg) || self.iceberg.upsertKey == '' || self.format != 'json' || has(self.schema)": lambda it: (
        "iceberg" not in it or it["iceberg"]["upsertKey"] == "" or it["format"] != "json" or "schema" in it
    ),
    "!has(self.iceberg) || self.iceberg.upsertKey in ['', 'key'] || !(self.format in ['bytes', 'string'])": lambda it: (
        "iceberg" not in it or it["iceberg"]["upsertKey"] in ("", "key") or it["format"] not in ("bytes", "string")
    ),
    RESOURCE_NAMES_RULE: lambda it: all(len(name) <= RESOURCE_NAME_CHARS_MAX for name in it),
    JOBS_OWN_RULE: frozenset(JOBS_OWN).isdisjoint,
    CONSUMER_NAMES_RULE: lambda it: all(re.fullmatch(r"[A-Za-z0-9._-]+", name) for name in it),
    "self.topics.size() <= 1 || !has(self.iceberg) || self.oneTable": lambda it: (
        len(it["topics"]) <= 1 or "iceberg" not in it or it["oneTable"]
    ),
    "self.topics.size() > 0": lambda it: len(it["topics"]) > 0,
    "self.all(one, self.exists_one(other, other == one))": lambda it: len(set(it)) == len(it),
    TARGETS_RULE: lambda it: not it["targets"] or it["topic"] == "",
    ONE_KEY_RULE: lambda it: [it["field"], it["header"], it["constant"]].count("") == 2,
    LANE_RULE: lambda it: (it["header"] != "") != (it["baggage"] != ""),
    RATE_RULE: lambda it: it["messagesPerSecond"] > 0 or it["bytesPerSecond"] > 0,
    LEAST_RATE_RULE: lambda it: all(
        one == 0 or one >= 0.001 for one in (it["messagesPerSecond"], it["bytesPerSecond"])
    ),
    QUOTA_RATES_RULE: lambda it: all(
        one == 0 or one >= 1_024 for one in (it["writeBytesPerSecond"], it["readBytesPerSecond"])
    ),
    QUOTA_STORAGE_RULE: lambda it: (
        it["storageBytes"] == 0 or (it["partitions"] > 0 and it["storageBytes"] // it["partitions"] >= 1 << 20)
    ),
    REDACT_RULE: lambda it: bool(it["replace"] or it["remove"]),
    "self.all(name, name.startsWith('spark.'))": lambda it: all(name.startswith("spark.") for name in it),
}
"""CEL to what it says of a value as JSON has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A field that cannot be as it is written. `value` is as it stands there, shortened; empty where nothing does."""

    field: str
    value: str
    why: str
    remedy: str

    def __str__(self) -> str:
        """In one line."""
        return f"{self.field}{f' ({self.value})' if self.value else ''}: {self.why}: {self.remedy}"


def check(kind: type[Resource], document: Mapping[str, Any]) -> Resource | list[Finding]:
    """The resource that the document is, or all that is wrong with it. Its status, which is not the writer's, is not
    looked at.
    """
    schema = {"properties": {"metadata": _META, "spec": _part(kind, "spec")}}
    written = _without_nulls(schema, {name: value for name, value in document.items() if name != "status"})
    try:
        resource = kind.model_validate(written, strict=True, by_alias=True, by_name=False, context=AS_KUBERNETES)
    except ValidationError as error:
        return explained(kind, written, error)
    return [*_broken_rules(kind, resource), *_unusable_names(resource)] or resource


def explained(kind: type[Resource], document: Mapping[str, Any], error: ValidationError) -> list[Finding]:
    """What pydantic found, in sentences: field, value, why not, and what helps."""
    return [_finding(kind, document, detail) for detail in error.errors(include_url=False, include_context=True)]


def rules_of(schema: Mapping[str, Any]) -> Iterator[str]:
    """All rules of a structural schema, those on old objects as well."""
    yield from (one["rule"] for one in schema.get("x-kubernetes-validations", ()))
    inner = [
        *schema.get("properties", {}).values(),
        *(schema[name] for name in ("items", "additionalProperties") if name in schema),
    ]
    for part in inner:
        yield from rules_of(part)


def needs_old(rule: str) -> bool:
    """Whether a rule is about a change, and so nothing can be said of a document alone."""
    return "oldSelf" in rule


@functools.cache
def _part(kind: type[Resource], name: str) -> Mapping[str, Any]:
    schema: Mapping[str, Any] = with_affinity(structural_part(kind, name))
    return schema


def _without_nulls(schema: Mapping[str, Any], value: Any) -> Any:
    """As the API server takes nulls (`kubectl apply` and `create`): of a field or a key that has to have a value, as if
    it were not written.
    """
    if isinstance(value, list):
        return [_without_nulls(schema.get("items", {}), item) for item in value]
    if not isinstance(value, dict):
        return value
    fields, others = schema.get("properties", {}), schema.get("additionalProperties", {})
    found = {}
    for name, one in value.items():
        part = fields.get(name, others)
        if one is not None or not part or part.get("nullable"):
            found[name] = _without_nulls(part, one)
    return found


def _broken_rules(kind: type[Resource], resource: Resource) -> Iterator[Finding]:
    yield from _walk(_part(kind, "spec"), getattr(resource, "spec").written(), "spec")  # noqa: B009 each kind has a spec of its own type


def _walk(schema: Mapping[str, Any], value: Any, path: str) -> Iterator[Finding]:
    for one in schema.get("x-kubernetes-validations", ()):
        if not needs_old(one["rule"]) and not RULES[one["rule"]](value):
            why, _, remedy = one["message"].rpartition(": ")
            yield Finding(
                field=path, value=_shown(value), why=why or one["message"], remedy=remedy if why else "change it"
            )
    if isinstance(value, dict):
        for name, part in schema.get("properties", {}).items():
            if name in value:
                yield from _walk(part, value[name], f"{path}.{name}")
    elif isinstance(value, list):
        if keys := schema.get("x-kubernetes-list-map-keys"):
            yield from _duplicates(value, keys, path)
        for index, item in enumerate(value):
            yield from _walk(schema.get("items", {}), item, f"{path}[{index}]")


def _duplicates(items: Sequence[Any], keys: Sequence[str], path: str) -> Iterator[Finding]:
    seen = set()
    for index, item in enumerate(items):
        key = tuple(item.get(name) for name in keys)
        if key in seen:
            shown = ", ".join(f"{name} {item.get(name)}" for name in keys)
            yield Finding(
                field=f"{path}[{index}]",
                value=_shown(item),
                why=f"there is one with {shown} already",
                remedy="give each its own",
            )
        seen.add(key)


def _unusable_names(resource: Resource) -> Iterator[Finding]:
    """Names of objects that bmq cannot use, where they stand for the resource's own and none is written: Kubernetes
    allows more than bmq.
    """
    if isinstance(resource, Topic) and not resource.spec.topic_name:
        try:
            check_topic_name(resource.topic_name)
        except InvalidTopicName as error:
            remedy = "write spec.topicName, or choose another name"
            yield Finding(field="metadata.name", value=_shown(resource.metadata.name), why=str(error), remedy=remedy)
    if isinstance(resource, Channel):
        for field, topic in resource.topics.items():
            try:
                check_topic_name(topic)
            except InvalidTopicName as error:
                remedy = (
                    "write spec.topic, or choose another name" if field == "metadata.name" else "name another topic"
                )
                yield Finding(field=field, value=_shown(topic), why=str(error), remedy=remedy)
    if isinstance(resource, Lane) and not re.fullmatch(LANE_NAME, resource.lane_name):
        why = "it is no lane's name: 1 to 32 of a-z, 0-9 and -, neither at the beginning nor at the end a -"
        yield Finding(
            field="metadata.name",
            value=_shown(resource.metadata.name),
            why=why,
            remedy="write spec.laneName, or choose another name",
        )
    if isinstance(resource, Cluster) and "." in resource.metadata.name:
        why = "Services are named after a Cluster, and theirs have no dot"
        yield Finding(
            field="metadata.name",
            value=_shown(resource.metadata.name),
            why=why,
            remedy="choose a name of a-z, 0-9 and -",
        )


def _finding(kind: type[Resource], document: Mapping[str, Any], detail: ErrorDetails) -> Finding:
    location, value = _located(document, detail)
    why, remedy = _said(kind, location, detail)
    untold = detail["type"] in ("missing", "affinity", "placement", "schema", "texts")
    return Finding(field=_path(location), value="" if untold else _shown(value), why=why, remedy=remedy)


def _located(document: Any, detail: ErrorDetails) -> tuple[list[str | int], Any]:
    """As far as the document goes: pydantic also names the alternatives that it tried."""
    location: list[str | int] = []
    value = document
    for step in detail["loc"]:
        inside = (isinstance(value, dict) and step in value) or (isinstance(value, list) and isinstance(step, int))
        if not inside:
            return ([*location, step], None) if detail["type"] == "missing" else (location, value)
        location.append(step)
        value = value[step]
    return location, value


def _said(kind: type[Resource], location: Sequence[str | int], detail: ErrorDetails) -> tuple[str, str]:
    context = detail.get("ctx", {})
    match detail["type"]:
        case "missing":
            return "it is missing", "add it"
        case "extra_forbidden":
            return "there is no such field", _similar(kind, location)
        case "string_type":
            return "it has to be text", f'put it in quotes: "{_shown(detail["input"])}"'
        case "string_unicode":
            return (
                "it has half of a character that is made of two (a lone surrogate)",
                "write the whole character, or leave it out",
            )
        case "string_too_long":
            return f"it has more than {context['max_length']} characters", "shorten it"
        case "string_too_short":
            return f"it has fewer than {context['min_length']} characters", "write a longer one"
        case "too_long":
            return f"it has more than {context['max_length']} entries", "leave some out"
        case "int_type" | "int_from_float" | "int_parsing" | "int_parsing_size":
            return "it has to be a whole number", "write one, without quotes"
        case "bool_type" | "bool_parsing":
            return "it has to be true or false", "write one of them, without quotes"
        case "literal_error":
            return f"it has to be {context.get('expected', 'another one')}", "write it so"
        case "greater_than_equal":
            return f"it has to be {context['ge']} or more", "raise it"
        case "less_than_equal":
            return f"it has to be {context['le']} or less", "lower it"
        case "string_pattern_mismatch":
            return f"it does not match {context['pattern']}", "change it so that it does"
        case "dict_type" | "model_type" | "model_attributes_type":
            return "it has to have fields of its own", "write them below it, further to the right, or leave it out"
        case "affinity":
            most = f"{PARTS_MAX} names and values, or {CHARS_MAX} characters"
            return f"it has more than {most}, or is nested more than {DEPTH_MAX} deep", "leave some out"
        case "placement":
            said = "its nodeSelector, annotations, labels and env"
            return f"{said} have more than {TEXT_CHARS_MAX} characters in all", "shorten them, or leave some out"
        case "texts":
            said = "its names and values"
            return f"{said} have more than {context['max_length']} characters in all", "shorten them, or leave some out"
        case "list_type":
            return "it has to be a list", "write each of its items on a line that begins with -"
        case "channel" | "key" | "lane" | "path" | "rate" | "redact" | "schema" | "targets":
            # What a model says itself: why, and what helps.
            why, _, remedy = detail["msg"].rpartition(": ")
            return (why, remedy) if why else (detail["msg"], "change it")
        case "greater_than":
            return f"it has to be more than {context['gt']}", "raise it"
        case "finite_number":
            return "it has to be a number that ends", "write one"
        case "float_type" | "float_parsing":
            return "it has to be a number", "write one, without quotes"
        case _:
            return f"it cannot be used ({detail['type']})", "change it"


def _similar(kind: type[Resource], location: Sequence[str | int]) -> str:
    """The field that was meant, where one is near; else all that there are."""
    top: dict[str, Any] = {field.alias or name: {} for name, field in kind.model_fields.items()}
    schema: Mapping[str, Any] = {"properties": top | {name: _part(kind, name) for name in ("spec", "status")}}
    for step in location[:-1]:
        schema = schema["items"] if isinstance(step, int) else schema["properties"][step]
    names = list(schema["properties"])
    near = difflib.get_close_matches(str(location[-1]), names, n=1)
    return f"write {near[0]}, or leave it out" if near else f"leave it out, or write one of {', '.join(names)}"


def _path(location: Sequence[str | int]) -> str:
    path = ""
    for step in location:
        path += f"[{step}]" if isinstance(step, int) else f".{_shown(step)}" if path else _shown(step)
    return path or "the document"


def _shown(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= _VALUE_LENGTH_SHOWN else f"{text[: _VALUE_LENGTH_SHOWN - 1]}…"
