"""A Cluster whose changes the operator's own runner rolls out, look by look, in a time of its own. What Kubernetes
makes of StatefulSets, how nodes start, and what the leading controller answers are the tests' own.
"""

import base64
import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, cast

from clusters_world import Strict, World, cluster
from kube_of_a_test import TestClock

from bmq_admin.client import AdminClient
from bmq_admin.errors import AdminProblem
from bmq_admin.requests import Request
from bmq_operator.clusters.keys import reference
from bmq_operator.clusters.names import NODE_IDS_FROM, Component
from bmq_operator.known import Known
from bmq_operator.main import KINDS
from bmq_operator.runner import FINALIZER, Runner
from bmq_operator.workqueue import WorkQueue

LOOK_S: Final = 2
"""Between two looks, as while something is under way."""
STARTS_S: Final = 6
"""From when a node is made until it is ready."""
ENDS_S: Final = 60
"""How often one ends that its settings break."""
MOVES: Final = 4
"""Partitions that leave a broker that is drained between two looks."""
REVISION: Final = "controller-revision-hash"


class RollingKube(Strict):
    """Counts the versions of specs, and says what the operator changes and deletes."""

    def __init__(self, say: Callable[[str], None], *manifests: dict[str, Any]) -> None:
        self._say = say
        self._specs: dict[tuple[str, str], str] = {}
        super().__init__(*manifests)

    def keep(self, manifest: dict[str, Any]) -> None:
        kind, meta = manifest["kind"], manifest["metadata"]
        written, key = json.dumps(manifest.get("spec"), sort_keys=True), (kind, meta["name"])
        before = self._specs.get(key)
        if before != written:
            meta["generation"] = meta.get("generation", 0) + (before is not None)
            self._specs[key] = written
        if kind == "StatefulSet" and before is not None:
            old, new = json.loads(before)["replicas"], manifest["spec"]["replicas"]
            if old != new:
                self._say(f"the operator wants {new} of {meta['name']}")
        super().keep(manifest)

    async def delete(self, kind: str, namespace: str, name: str, *, uid: str = "") -> None:
        before = len(self.deleted)
        await super().delete(kind, namespace, name, uid=uid)
        if kind == "Pod" and len(self.deleted) > before:
            self._say(f"the operator deletes {name}")


@dataclass(slots=True)
class Broken:
    """Which settings break nodes of which role."""

    variables: dict[str, str]
    role: str
    image: str = ""
    held_back: bool = False
    """It does not even start."""

    def breaks(self, pod: dict[str, Any]) -> bool:
        container = pod["spec"]["containers"][0]
        has = {one["name"]: one.get("value", "") for one in container["env"]}
        role = pod["metadata"]["labels"]["app.kubernetes.io/component"]
        return (
            self.role in ("", role) and self.variables.items() <= has.items() and self.image in ("", container["image"])
        )


@dataclass(slots=True)
class Nodes:
    """What the leading controller knows, and does."""

    partitions: dict[int, int] = field(default_factory=dict)
    """By broker."""
    cordoned: set[int] = field(default_factory=set)
    draining: set[int] = field(default_factory=set)
    leader: int | None = None
    """Its ordinal."""

    def heirs(self, alive: set[int], *, of: int) -> list[int]:
        able = [one for one in self.partitions if one in alive and one not in self.cordoned and one != of]
        return sorted(able, key=lambda one: (self.partitions[one], one))

    def are_made(self, count: int) -> None:
        """Partitions, each for the broker that has the fewest."""
        for _ in range(count):
            self.partitions[min(self.partitions, key=lambda one: (self.partitions[one], one))] += 1

    def step(self, alive: set[int]) -> None:
        """Some partitions of each broker that is drained go."""
        for node_id in sorted(self.draining & alive):
            self._gives(node_id, alive, count=MOVES)

    def stops(self, node_id: int, alive: set[int]) -> None:
        """It hands its partitions over, if there is anybody."""
        self._gives(node_id, alive, count=self.partitions[node_id])

    def _gives(self, node_id: int, alive: set[int], *, count: int) -> None:
        for _ in range(min(count, self.partitions[node_id])):
            if heirs := self.heirs(alive, of=node_id):
                self.partitions[node_id] -= 1
                self.partitions[heirs[0]] += 1

    def leads(self, alive: set[int]) -> None:
        if self.leader not in alive:
            self.draining.clear()  # the next one knows nothing of it
            self.leader = min((one for one in alive if one < NODE_IDS_FROM["broker"]), default=None)


class Rolling(World):
    """`say` is told what happens."""

    def __init__(self, say: Callable[[str], None], *, counts: dict[str, int]) -> None:
        super().__init__()
        self._say = say
        self.clock = TestClock()
        self._started_ms = self.clock.ms
        roles: dict[str, Any] = {role: {"replicas": count} for role, count in counts.items()}
        resource = cluster(image={"repository": "bmq", "tag": "1"}, **roles)
        self.kube = RollingKube(say, *self.kube.manifests.values(), resource)
        self.nodes = Nodes()
        self.broken: list[Broken] = []
        self.without_room: set[str] = set()
        """Names of pods for which no machine has room."""
        self._templates: dict[str, list[str]] = {}
        self._ready: dict[str, bool] = {}
        """By the uid of a pod."""
        self._told = {"KeysAsWritten": "keys: as written", "BrokersInUse": "brokers: in use"}
        self._admin = _Admin(self)
        self.operator_starts()

    @property
    def now_s(self) -> int:
        return (self.clock.ms - self._started_ms) // 1000

    def operator_starts(self) -> None:
        """One that knows nothing but what the API server has."""
        self.context = replace(
            self.context,
            kube=self.kube,  # type: ignore[arg-type]
            clock=self.clock,
            admin=lambda url, token: self._admin,
            known=Known(),
        )
        self._runner = Runner(self.context, WorkQueue(), KINDS)

    def change(self, **spec: Any) -> None:
        """Somebody writes into the Cluster's spec."""
        there = self.there("Cluster", "prod")
        self.kube.keep({**there, "metadata": dict(there["metadata"]), "spec": {**there["spec"], **spec}})

    def obstructed(self, is_so: bool) -> None:
        """Somebody writes an image that is not allowed, or takes that back."""
        image = self.there("Cluster", "prod")["spec"]["image"]
        self.change(image={**image, "repository": "evil.example/steal" if is_so else "bmq"})

    def of_another_version(self, is_so: bool) -> None:
        """Somebody writes what this operator does not understand, or takes that back."""
        spec = self.there("Cluster", "prod")["spec"]
        spec.pop("ofAnotherVersion", None)
        self.change(**({"ofAnotherVersion": True} if is_so else {}))

    def deleted_unconfirmed(self) -> None:
        """Somebody deletes it with its records, and confirms that to nobody."""
        self.change(deletionPolicy="Delete")
        meta = self.there("Cluster", "prod")["metadata"]
        meta |= {"deletionTimestamp": self._time(), "finalizers": [FINALIZER]}

    def tells_of(self, node_id: int) -> bool:
        """Whether a condition says that this broker gets no partitions."""
        return f"prod-broker-{node_id - NODE_IDS_FROM['broker']}" in self.told_of_brokers()

    def told_of_brokers(self) -> str:
        """What Ready, and the condition about those that get no partitions, say."""
        return f"{self._told['BrokersInUse']} {self.ready('prod')[2]}"

    def secret_is_written(self, value: str) -> None:
        secret = self.there("Secret", "prod-auth")
        data = {**secret["data"], "cluster-secret": base64.b64encode(value.encode()).decode()}
        self.kube.keep({**secret, "data": data})

    async def looks(self, *, after_s: int = LOOK_S) -> bool:
        """One look, and the world goes on for so long; whether all is as it is to be."""
        await self.look("prod")
        told = {one["type"]: one for one in self.there("Cluster", "prod")["status"]["conditions"]}
        progress = told.get("Progressing", told["Ready"])
        self._tells("Progressing", f"{progress['reason']}: {progress['message']}")
        keys = told.get("KeysAsWritten")
        self._tells("KeysAsWritten", "keys: as written" if keys is None else f"keys: {keys['message']}")
        unused = told.get("BrokersInUse")
        self._tells("BrokersInUse", "brokers: in use" if unused is None else f"brokers: {unused['message']}")
        self.clock.ms += after_s * 1000
        self._kubernetes_goes_on()
        alive = self.alive()
        self.nodes.leads(alive)
        self.nodes.step(alive)
        return progress["status"] == "False" and told["Ready"]["status"] == "True"

    def say(self, line: str) -> None:
        self._say(line)

    def _tells(self, condition: str, line: str) -> None:
        if line != self._told.get(condition):
            self._told[condition] = line
            self._say(line)

    def pods(self) -> list[dict[str, Any]]:
        return [one for (kind, _, _), one in sorted(self.kube.manifests.items()) if kind == "Pod"]

    def alive(self) -> set[int]:
        """By node id."""
        return {node_id_of(pod["metadata"]["name"]) for pod in self.pods() if self._ready.get(pod["metadata"]["uid"])}

    def _kubernetes_goes_on(self) -> None:
        sets = [one for (kind, _, _), one in sorted(self.kube.manifests.items()) if kind == "StatefulSet"]
        for one in sets:
            name, wanted = one["metadata"]["name"], one["spec"]["replicas"]
            numbered = self._templates.setdefault(name, [])
            template = json.dumps(one["spec"]["template"], sort_keys=True)
            if template not in numbered:
                numbered.append(template)
            revision = f"{name}-{numbered.index(template) + 1}"
            status = {
                "observedGeneration": one["metadata"].get("generation", 0),
                "updateRevision": revision,
                "replicas": wanted,
            }
            one["status"] = status
            of_set = [pod["metadata"]["name"] for pod in self.pods() if pod["metadata"]["name"].startswith(f"{name}-")]
            for gone in [pod for pod in of_set if int(pod.rpartition("-")[2]) >= wanted]:
                self.kube.drop("Pod", "shop", gone)
                self._say(f"{gone} is gone")
            for number in range(wanted):
                if f"{name}-{number}" not in of_set:
                    self._makes(one, f"{name}-{number}", revision)
        for pod in self.pods():
            self._node_goes_on(pod)
        there = self.alive()
        for node_id in [one for one in self.nodes.partitions if one not in there]:
            self.nodes.stops(node_id, there)

    def _makes(self, maker: dict[str, Any], name: str, revision: str) -> None:
        template = copy.deepcopy(maker["spec"]["template"])
        owner = {"controller": True, "uid": maker["metadata"]["uid"], "kind": "StatefulSet"}
        meta = {
            "name": name,
            "namespace": "shop",
            "labels": {**template["metadata"]["labels"], REVISION: revision},
            "creationTimestamp": self._time(),
            "ownerReferences": [{**owner, "name": maker["metadata"]["name"]}],
        }
        self.kube.keep(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": meta,
                "spec": template["spec"],
                "status": {"conditions": []},
            }
        )

    def _node_goes_on(self, pod: dict[str, Any]) -> None:
        meta, status = pod["metadata"], pod["status"]
        lived_s = self.clock.ms // 1000 - round(datetime.fromisoformat(meta["creationTimestamp"]).timestamp())
        if meta["name"] in self.without_room:
            status["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
            return
        broken = next((one for one in self.broken if one.breaks(pod)), None)
        if broken is None:
            if lived_s >= STARTS_S and not self._ready.get(meta["uid"]):
                self._ready[meta["uid"]] = True
                if (node_id := node_id_of(meta["name"])) in range(1000, 2000):
                    self.nodes.partitions.setdefault(node_id, 0)
                status["conditions"] = [{"type": "Ready", "status": "True", "lastTransitionTime": self._time()}]
                self._say(f"{meta['name']} is ready, with {said(pod)}")
        elif broken.held_back:
            status["containerStatuses"] = [{"state": {"waiting": {"reason": "ImagePullBackOff"}}, "restartCount": 0}]
        elif lived_s >= STARTS_S and (lived_s - STARTS_S) // ENDS_S >= (ended := _restarts(pod)):
            status["containerStatuses"] = [{"state": {}, "restartCount": ended + 1}]
            if not ended:
                self._say(f"{meta['name']} ends again and again, with {said(pod)}")

    def _time(self) -> str:
        return datetime.fromtimestamp(self.clock.ms / 1000, tz=UTC).isoformat()


class _Admin(AdminClient):
    """The leading controller's answers."""

    def __init__(self, world: Rolling) -> None:
        super().__init__("http://admin")
        self._world = world

    async def ask(self, request: Request) -> Any:
        nodes, alive = self._world.nodes, self._world.alive()
        path = request.target.removeprefix("/v1/").partition("?")[0]
        match request.method, *path.split("/"):
            case "GET", "cluster":
                unowned = sum(count for one, count in nodes.partitions.items() if one not in alive)
                return {"cluster_id": "shop-prod", "partitions_unowned": unowned}
            case "GET", "nodes":
                names = [pod["metadata"]["name"] for pod in self._world.pods()]
                return {"items": [self._node(node_id_of(name), alive) for name in names], "continue": None}
            case "GET", "debug", "store":
                return {"ok": True, "steps": []}
            case "POST", "nodes", number, "drain":
                if not nodes.heirs(alive, of=int(number)):
                    raise AdminProblem(status=409, code="NoHeir", what="drain", why="nobody takes them", remedy="")
                nodes.cordoned.add(int(number))
                nodes.draining.add(int(number))
                self._world.say(f"the operator drains {number}")
                return {}
            case "POST", "nodes", number, "uncordon":
                nodes.cordoned.discard(int(number))
                nodes.draining.discard(int(number))
                self._world.say(f"the operator uncordons {number}")
                return {}
            case _:
                raise AssertionError(request)

    def _node(self, node_id: int, alive: set[int]) -> dict[str, Any]:
        nodes = self._world.nodes
        return {
            "node_id": node_id,
            "state": "alive" if node_id in alive else "fenced",
            "leads": node_id == nodes.leader,
            "cordoned": node_id in nodes.cordoned,
            "draining": node_id in nodes.draining,
            "partitions": nodes.partitions.get(node_id, 0),
            "moving_away": 0,
            "moving_here": 0,
        }


def node_id_of(name: str) -> int:
    """Of the node that a pod of this name is."""
    _, role, ordinal = name.rsplit("-", 2)
    return NODE_IDS_FROM[cast(Component, role)] + int(ordinal)


def said(pod: dict[str, Any]) -> str:
    """What a person would look at: its image, what was set for it, and its keys."""
    container = pod["spec"]["containers"][0]
    variables = [f"{one['name']}={one['value']}" for one in container["env"] if one["name"].startswith("BMQ_X")]
    keys, _ = reference(pod["spec"])
    return ", ".join([container["image"], *variables, keys])


def _restarts(pod: dict[str, Any]) -> int:
    return sum(one["restartCount"] for one in pod["status"].get("containerStatuses", ()))
