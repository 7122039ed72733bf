"""What differs between what is written and what is there, as the admin REST API tells and takes it. Pure."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic.alias_generators import to_camel

from bmq_resources.lane import LaneSpec, Quota


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One field. None: it is not there, or is not to be."""

    field: str
    before: str | int | bool | None
    after: str | int | bool | None

    def document(self) -> dict[str, str | int | bool | None]:
        """For programs."""
        return {"field": self.field, "before": self.before, "after": self.after}


def config_differences(written: Mapping[str, str], present: Mapping[str, str]) -> list[Difference]:
    """By key. A key that is present and not written goes back to its default: the text is all there is to know. Blanks
    around a value, such as the new line of a block in YAML, are none: a cluster keeps values without them."""
    return [
        Difference(field=name, before=present.get(name), after=written.get(name))
        for name in sorted({*written, *present})
        if _kept(written.get(name)) != _kept(present.get(name))
    ]


def as_changes(differences: Sequence[Difference]) -> dict[str, str | int | bool | None]:
    """What a PATCH of a configuration takes: keys and their new values, null for the default."""
    return {one.field: one.after for one in differences}


def lane_body(spec: LaneSpec, *, own_brokers: bool) -> dict[str, Any]:
    """A lane as the API takes it."""
    reads = spec.reads.base
    body: dict[str, Any] = {
        "ttl_seconds": spec.ttl_seconds,
        "own_brokers": own_brokers,
        "reads_base": {
            "enabled": reads.enabled and bool(reads.topics),
            "topics": reads.topics,
            "bytes_per_second": reads.bytes_per_second,
        },
        "fallback": spec.fallback,
    }
    # What is as by default is left out: a cluster of an earlier version does not know it.
    if spec.parent:
        body["parent"] = spec.parent
    if spec.quota != Quota():
        body["quota"] = spec.quota.model_dump()
    return body


def lane_differences(body: Mapping[str, Any], view: Mapping[str, Any] | None) -> list[Difference]:
    """By the names of a Lane's spec. Limits of reads that are not enabled are no difference."""
    before, after = ({} if view is None else _lane_fields(view)), _lane_fields(body)
    return [
        Difference(field=name, before=before.get(name), after=after.get(name))
        for name in dict.fromkeys((*after, *before))
        if before.get(name) != after.get(name)
    ]


def channel_differences(said: Mapping[str, Any], present: Mapping[str, Any]) -> list[Difference]:
    """Between what two channels say, by the paths of a Channel's spec; what is as by default is None."""
    before, after = dict(_leaves(present, "")), dict(_leaves(said, ""))
    return [
        Difference(field=name, before=before.get(name), after=after.get(name))
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]


def _leaves(part: Mapping[str, Any], path: str) -> Iterator[tuple[str, str | int | bool]]:
    for name, value in part.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value if isinstance(value, (str, int, bool)) else json.dumps(value)


def _kept(value: str | None) -> str | None:
    return None if value is None else value.strip()


def _lane_fields(lane: Mapping[str, Any]) -> dict[str, str | int | bool]:
    reads = lane["reads_base"]
    fields: dict[str, str | int | bool] = {
        "ttlSeconds": lane["ttl_seconds"],
        "brokers": lane["own_brokers"],
        "reads.base.enabled": reads["enabled"],
    }
    if lane.get("fallback", "none") != "none":
        fields["fallback"] = lane["fallback"]
    if lane.get("parent"):
        fields["parent"] = lane["parent"]
    fields |= {f"quota.{to_camel(name)}": most for name, most in lane.get("quota", {}).items() if most}
    if reads["enabled"]:
        fields |= {
            "reads.base.topics": ", ".join(reads["topics"]),
            "reads.base.bytesPerSecond": reads["bytes_per_second"],
        }
    return fields
