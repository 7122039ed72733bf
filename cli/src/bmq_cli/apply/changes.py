"""What `bmq apply` changes of a cluster, resource by resource, by the admin REST API; with a dry run, what it would
change.

A change is made to the version that was looked at, or not at all.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from bmq_admin import pages
from bmq_admin.requests import Request
from bmq_cli.apply.documents import Document, Written, title
from bmq_cli.cluster.client import ApiFailed, ClusterClient
from bmq_cli.terminal.exit_codes import CommandFailed, ExitCode
from bmq_resources.base import Part
from bmq_resources.channel import Channel
from bmq_resources.cluster import Cluster
from bmq_resources.differences import (
    Difference,
    as_changes,
    channel_differences,
    config_differences,
    lane_body,
    lane_differences,
)
from bmq_resources.lane import Lane
from bmq_resources.parquet_sink import ParquetSink
from bmq_resources.topic import Topic

T = TypeVar("T")
CREATED: Final = "created"
CHANGED: Final = "changed"
UNCHANGED: Final = "unchanged"
SKIPPED: Final = "skipped"
FAILED: Final = "failed"
_NEEDS_SPARK: Final = (
    "not applied without Kubernetes, where the operator has Spark write the tables: run spark-apps/parquet.py yourself"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one resource."""

    resource: Written
    action: str
    differences: Sequence[Difference] = ()
    notes: Sequence[str] = field(default=())

    def document(self, *, dry_run: bool) -> dict[str, Any]:
        """For programs."""
        metadata = self.resource.metadata
        return {
            "kind": self.resource.kind,
            "namespace": metadata.namespace,
            "name": metadata.name,
            "action": self.action,
            "dry_run": dry_run,
            "changes": [one.document() for one in self.differences],
            "notes": list(self.notes),
        }


class Applier:
    """One run. Reads the list of topics once."""

    def __init__(self, client: ClusterClient, *, dry_run: bool) -> None:
        self._client = client
        self._dry_run = dry_run
        self._topics: set[str] | None = None

    def apply(self, document: Document) -> Outcome:
        """Makes the cluster what the document says. Raises CommandFailed, which names the resource and where it
        stands.
        """
        resource = document.resource
        try:
            match resource:
                case Cluster():
                    return self._cluster(resource)
                case Topic():
                    return self._topic(resource)
                case Lane():
                    return self._lane(resource)
                case Channel():
                    return self._channel(resource)
                case ParquetSink():
                    return Outcome(resource=resource, action=SKIPPED, notes=[_NEEDS_SPARK])
        except ApiFailed as failure:
            if failure.status == 0 or failure.status in (401, 403):
                raise
            remedy = "somebody else changed it meanwhile: apply again" if failure.status == 412 else failure.remedy
            raise CommandFailed(
                f"{document.where} ({title(resource)})", failure.why, remedy, code=failure.code
            ) from failure

    def _cluster(self, cluster: Cluster) -> Outcome:
        present = self._client.ask(pages.configs())
        differences = config_differences(
            cluster.spec.config, {one["name"]: one["value"] for one in present["configs"] if one["source"] == "cluster"}
        )
        if differences:
            changes = as_changes(differences)
            self._client.ask(pages.change_configs(changes, version=present["version"], dry_run=self._dry_run))
        return _changed(cluster, _under("config", differences), notes=_needs_kubernetes(cluster.spec, {"config"}))

    def _topic(self, topic: Topic) -> Outcome:
        if not topic.spec.managed:
            return Outcome(resource=topic, action=SKIPPED, notes=["managed: false: nothing is changed"])
        name, spec = topic.topic_name, topic.spec
        notes = [] if spec.parquet is None else [f"parquet: {_NEEDS_SPARK}"]
        if name not in self._topic_names():
            self._client.ask(
                pages.create_topic(name, partitions=spec.partitions, configs=spec.config, dry_run=self._dry_run)
            )
            created = [
                Difference(field="partitions", before=None, after=spec.partitions),
                *_under("config", config_differences(spec.config, {})),
            ]
            return Outcome(resource=topic, action=CREATED, differences=created, notes=notes)
        view = self._client.ask(pages.topic(name))
        if view["partitions"] > spec.partitions:
            raise ApiFailed(
                f"topic {name}",
                f"partitions: {spec.partitions}: it has {view['partitions']}, and partitions can only grow: "
                "records would be lost",
                f"write {view['partitions']} or more",
                code=ExitCode.USAGE,
                status=400,
            )
        differences = []
        if view["partitions"] < spec.partitions:
            differences.append(Difference(field="partitions", before=view["partitions"], after=spec.partitions))
            view = self._client.ask(
                pages.grow_topic(name, total=spec.partitions, version=view["version"], dry_run=self._dry_run)
            )
        configs = config_differences(spec.config, view["configs"])
        if configs:
            changes = as_changes(configs)
            self._client.ask(pages.change_topic(name, changes, version=view["version"], dry_run=self._dry_run))
        return _changed(topic, [*differences, *_under("config", configs)], notes=notes)

    def _present(self, request: Request[T], kind: str, name: str) -> T | None:
        """None: there is none of this name. A cluster of an earlier version may know nothing of the kind."""
        unknown = f"Unknown{kind.capitalize()}"
        try:
            return self._client.ask(request)
        except ApiFailed as failure:
            if failure.problem == unknown:
                return None
            if failure.status == 404:
                remedy = "leave it out, or run a newer version of bmq"
                raise ApiFailed(
                    f"{kind} {name}", f"this cluster has no {kind}s", remedy, code=failure.code, status=failure.status
                ) from failure
            raise

    def _lane(self, lane: Lane) -> Outcome:
        name = lane.lane_name
        notes = _needs_kubernetes(lane.spec, {"cluster_ref", "lane_name", "ttl_seconds", "fallback", "parent", "reads"})
        view = self._present(pages.lane(name), "lane", name)
        # Whether the lane has brokers of its own depends on whether somebody starts some: as it is, it stays.
        body = lane_body(lane.spec, own_brokers=view is not None and view["own_brokers"])
        differences = lane_differences(body, view)
        if view is None:
            if not self._dry_run:
                self._client.ask(pages.create_lane({"name": name, **body}))
            return Outcome(
                resource=lane,
                action=CREATED,
                differences=[one for one in differences if one.field != "brokers"],
                notes=notes,
            )
        if differences and not self._dry_run:
            self._client.ask(pages.change_lane(name, body, version=view["version"]))
        return _changed(lane, differences, notes=notes)

    def _channel(self, channel: Channel) -> Outcome:
        name, said = channel.channel_name, channel.spec.said()
        view = self._present(pages.channel(name), "channel", name)
        if view is None:
            self._client.ask(pages.create_channel(name, said, dry_run=self._dry_run))
            return Outcome(resource=channel, action=CREATED, differences=channel_differences(said, {}))
        differences = channel_differences(said, view["spec"])
        if differences:
            self._client.ask(pages.change_channel(name, said, version=view["version"], dry_run=self._dry_run))
        return _changed(channel, differences)

    def _topic_names(self) -> set[str]:
        if self._topics is None:
            self._topics = {one["name"] for one in self._client.all(pages.topics())}
        return self._topics


def _changed(resource: Written, differences: Sequence[Difference], *, notes: Sequence[str] = ()) -> Outcome:
    return Outcome(
        resource=resource, action=CHANGED if differences else UNCHANGED, differences=differences, notes=notes
    )


def _under(parent: str, differences: Sequence[Difference]) -> list[Difference]:
    return [Difference(field=f"{parent}.{one.field}", before=one.before, after=one.after) for one in differences]


def _needs_kubernetes(spec: Part, applied: set[str]) -> list[str]:
    """What is written and has no meaning without Kubernetes."""
    fields = type(spec).model_fields
    left = [fields[name].alias or name for name in fields if name in spec.model_fields_set - applied]
    return [f"not applied without Kubernetes: {', '.join(left)}"] if left else []
