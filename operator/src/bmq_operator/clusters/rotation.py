"""How far the replacement of keys has come: which keys there are, who uses which of them, and who keeps it from going
on. Pure.

The next list of keys (`keys`) is chosen from what all nodes have, those of lanes too. A node that keeps an old key
therefore keeps the old key alive, whatever became of its Lane: its template is brought to the newest keys, and nothing
else of it. What only nodes of lanes have and nobody knows any more (a Cluster was deleted and made anew, its Lanes
stayed) keeps nothing alive: those are replaced.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bmq_operator.clusters.existing import Existing, owner_of
from bmq_operator.clusters.inputs import Inputs
from bmq_operator.clusters.keys import Keys, keys_of, reference
from bmq_operator.clusters.names import COMPONENT_LABEL, CONFIG_HASH, LANE_LABEL, ROLES, Names
from bmq_operator.clusters.pods import CONFIG_VOLUME, CONTAINER, KEY_VARIABLES, config_map_of
from bmq_operator.conditions import Finding, first_of
from bmq_operator.kube import Manifest
from bmq_resources.cluster import Cluster


def known_keys(cluster: Cluster, existing: Existing, auth: Manifest | None) -> dict[str, Keys]:
    """By the names of their Secrets. Nodes that an older operator made take them from the one that people write."""
    names = Names.of(cluster)
    found = {
        name: keys
        for (kind, name), one in existing.objects.items()
        if kind == "Secret"
        and name.startswith(names.keys)
        and owner_of(one) == cluster.metadata.uid
        and (keys := keys_of(one)) is not None
    }
    written = None if auth is None else keys_of(auth)
    return found if written is None else found | {names.auth: written}


def used_keys(names: Names, existing: Existing, *, lanes: bool = True) -> dict[str, str]:
    """Names of the Secrets that nodes, with `lanes` those of lanes too, take their keys from, and one that does
    each.
    """
    sets = [one for (kind, _), one in existing.objects.items() if kind == "StatefulSet"]
    templates = [(one["metadata"], one["spec"]["template"]["spec"]) for one in sets]
    used = {name: user for user, name in _users(templates, lanes=lanes)}
    return used | {name: user for user, name in _nodes(names, existing, lanes=lanes)}


def replacing(inputs: Inputs, behind: Sequence[str] = (), refused: Sequence[str] = ()) -> Finding | None:
    """What is told while the nodes' keys are replaced; None: they are not. `behind`: nodes that do not have the newest
    list yet; `refused`: what the API server said of templates that could not be brought to it."""
    now = inputs.keys[inputs.keys_name]
    what = [
        noun
        for noun, values, wanted in (
            ("the secret between nodes", now.cluster, inputs.cluster_secret),
            ("the admin API's token", now.admin, inputs.admin_token),
        )
        if values != (wanted,)
    ]
    if not what and not behind and not refused:
        return None
    text = (
        f"{' and '.join(what) or 'keys'} {'are' if len(what) != 1 else 'is'} replaced: the old one counts until "
        "all nodes have the new one"
    )
    if behind:
        text += f"; to be replaced in this round: {first_of(behind)}"
    text += "".join(f"; {one}" for one in refused)
    return Finding(type="KeysAsWritten", status="False", reason="Replacing", message=text)


def halted(cluster: Cluster, existing: Existing, auth: Manifest | None, *, reason: str) -> Finding | None:
    """What is told of keys while the Cluster cannot be as its spec says, so that nothing is replaced: which ones count
    does not change by that.
    """
    names, sets = Names.of(cluster), existing.stateful_sets()
    current = reference(sets["controller"]["spec"]["template"]["spec"])[0] if "controller" in sets else ""
    now = known_keys(cluster, existing, auth).get(current)
    if now is None:
        return None
    written = (None if auth is None else keys_of(auth)) or now
    inputs = Inputs(
        default_image="",
        cluster_secret=written.cluster[0],
        admin_token=written.admin[0],
        keys_name=current,
        keys={current: now},
    )
    found = replacing(inputs, nodes_behind(names, existing, current))
    return (
        None
        if found is None
        else replace(found, message=f"{found.message}; none is replaced until what {reason} says is corrected")
    )


def nodes_behind(names: Names, existing: Existing, keys_name: str) -> list[str]:
    """Pods of nodes, those of lanes too, that take their keys from another Secret than this one: as long as there is
    one, the old keys count.
    """
    return sorted({user for user, name in _nodes(names, existing) if name != keys_name})


def of_nobody(existing: Existing) -> Finding | None:
    """What is told of StatefulSets of nodes that lost their owner (--cascade=orphan): they are in no rotation, and
    nothing that only has a Cluster's labels is changed or deleted by the operator."""
    found = sorted(
        str(one["metadata"]["name"])
        for one in existing.orphans
        if one["metadata"]["labels"].get(COMPONENT_LABEL) in ROLES
    )
    if not found:
        return None
    text = (
        f"nobody owns {first_of(found)}, as after a deletion with --cascade=orphan: nodes of it get neither new "
        "keys nor settings, and lose touch with the others once keys are replaced. Delete it: what is wanted is "
        "made anew"
    )
    return Finding(type="NodesOwned", status="False", reason="Orphaned", message=text)


def with_keys_of(there: Manifest, base: Manifest) -> Manifest | None:
    """What is to be changed of a StatefulSet of nodes so that they have the keys of this one, and start with the
    configuration that there is now (a JSON merge patch over this very version); None: nothing is."""
    wanted = {
        one["name"]: one
        for container in _nodes_containers(base)
        for one in container.get("env", ())
        if one["name"] in KEY_VARIABLES
    }
    containers = copy.deepcopy(there["spec"]["template"]["spec"]["containers"])
    for container in containers:
        if container["name"] == CONTAINER:
            left = dict(wanted)
            container["env"] = [left.pop(one["name"], one) for one in container.get("env", ())]
            container["env"] += left.values()
    if containers == there["spec"]["template"]["spec"]["containers"]:
        return None
    volumes = copy.deepcopy(there["spec"]["template"]["spec"].get("volumes", []))
    for volume in volumes:
        if volume["name"] == CONFIG_VOLUME:
            volume["configMap"]["name"] = config_map_of(base["spec"]["template"]["spec"])
    digest = (base["spec"]["template"]["metadata"].get("annotations") or {}).get(CONFIG_HASH, "")
    template = {
        "metadata": {"annotations": {CONFIG_HASH: digest}},
        "spec": {"containers": containers, "volumes": volumes},
    }
    return {"metadata": {"resourceVersion": there["metadata"]["resourceVersion"]}, "spec": {"template": template}}


def _nodes(names: Names, existing: Existing, *, lanes: bool = True) -> Iterator[tuple[str, str]]:
    # Pods without an owner whose names are those of nodes are nodes: a StatefulSet that is made anew takes them over.
    nodes = {names.role(role) for role in ROLES}
    orphans = [
        one for one in existing.strangers if not owner_of(one) and one["metadata"]["name"].rpartition("-")[0] in nodes
    ]
    yield from _users([(one["metadata"], one.get("spec", {})) for one in (*existing.pods, *orphans)], lanes=lanes)
    if lanes:
        for users in existing.left_out.values():
            yield from ((user, name) for name, user in users.items() if name)


def _users(specs: Sequence[tuple[Mapping[str, Any], Manifest]], *, lanes: bool) -> Iterator[tuple[str, str]]:
    """Names of what makes nodes, or is one, and of the Secrets that it takes its keys from."""
    for meta, spec in specs:
        name, _ = reference(spec)
        if name and meta["labels"].get(COMPONENT_LABEL) in ROLES and (lanes or not meta["labels"].get(LANE_LABEL)):
            yield str(meta["name"]), name


def _nodes_containers(stateful_set: Manifest) -> list[Manifest]:
    return [one for one in stateful_set["spec"]["template"]["spec"]["containers"] if one["name"] == CONTAINER]
