"""What the chart's Jobs do: `python3 -m bmq_operator.chart_hooks apply|release`.

`apply` applies the Cluster of the chart's values (BMQ_HOOK_MANIFEST, JSON): Helm itself could not in the install that
brings the CRDs, and would delete it in an uninstall. `release` takes bmq's finalizer off all resources once the
operator's pods (BMQ_HOOK_OPERATOR_LABELS) are gone: nobody would do it later. What the API server refuses to change
keeps nothing else from being let go, and is named in the end.
"""

import asyncio
import json
import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from bmq_operator.answers import part_of
from bmq_operator.kube import Kube, KubeError, KubeFailed, KubeProblem, KubeUnreachable, Manifest
from bmq_operator.runner import FINALIZER
from bmq_resources import KINDS
from bmq_resources.base import GROUP

FIELD_MANAGER: Final = "bmq-chart"
WAIT_S: Final = 60
AT_ONCE: Final = 16
"""Namespaces whose resources are let go beside each other."""
SILENCE_S: Final = 30
"""Once nobody answers for so long, what is left of a namespace is not tried: the Job has 150 s, and is to tell."""
NAMED_MAX: Final = 10
"""How many of those that were refused are named: Kubernetes keeps 2 KiB of what a Job's pod said last."""
WHY_MAX: Final = 100
"""Characters of why one was."""


class StillHeld(KubeError):
    """The operator's finalizer is on resources from which the API server does not let it be taken."""


@dataclass(slots=True)
class _Releases:
    """What became of what was to be let go."""

    count: int = 0
    held: list[tuple[Manifest, KubeError]] = field(default_factory=list)
    """Each of them, and why it is held."""
    unread: list[str] = field(default_factory=list)
    """What could not even be listed, and why."""

    def told(self) -> str:
        """Raises StillHeld."""
        done = f"{self.count} resources were released"
        if not self.held and not self.unread:
            return done
        named = [f"{one['kind']} {_title(one)} ({_short(why)})" for one, why in self.held]
        listed = [*self.unread, *named]
        more = [f"and {len(listed) - NAMED_MAX} more"] if len(listed) > NAMED_MAX else []
        lines = [f"{done}, but not all are. They keep {FINALIZER}, and once they are deleted wait for ever:"]
        lines += [*listed[:NAMED_MAX], *more]
        if self.held:
            lines += ["Mend what refuses it, and take it off each of them, as of the first:", _patch(self.held[0][0])]
        else:
            lines.append("docs/kubernetes.md says how it is taken off by hand")
        raise StillHeld("\n".join(lines))


async def apply(kube: Kube, manifest: Manifest) -> str:
    """Server-side apply; a CRD that was made a moment ago may not be served yet, and is waited for. Raises
    KubeError.
    """
    for _ in range(WAIT_S):
        try:
            applied = await kube.apply(manifest, manager=FIELD_MANAGER)
            return f"{applied['kind']} {applied['metadata']['name']} is applied"
        except KubeProblem as problem:
            if problem.status != 404:
                raise
            last = problem
        await asyncio.sleep(1)
    raise last


async def release(
    kube: Kube, namespaces: tuple[str, ...], *, own_namespace: str, operator_labels: dict[str, str]
) -> str:
    """Takes the finalizer off all resources of these namespaces (one empty one: all). Raises KubeError; StillHeld, and
    the others are let go, where some cannot be.
    """
    for _ in range(WAIT_S):
        if not await kube.each("Pod", own_namespace, keep=part_of, labels=operator_labels):
            break
        await asyncio.sleep(1)
    done = _Releases()
    found = defaultdict[str, list[Manifest]](list)
    for kind in (model.__name__ for model in KINDS):
        for namespace in namespaces:
            for one in await _all(kube, kind, namespace, done):
                found[one["metadata"]["namespace"]].append(one)
    # A webhook that does not answer takes its time for each resource of its namespace, and of no other one.
    turns = asyncio.Semaphore(AT_ONCE)
    async with asyncio.TaskGroup() as tasks:
        for of_one in found.values():
            tasks.create_task(_let_go(kube, of_one, done, turns))
    return done.told()


async def _all(kube: Kube, kind: str, namespace: str, done: _Releases) -> list[Manifest]:
    """Those that the operator holds."""
    try:
        return await kube.each(kind, namespace, keep=_held)
    except KubeProblem as problem:
        if problem.status != 404:  # else the CRD is gone, and all of its resources with it
            done.unread.append(_unread(kind, namespace, problem))
    except KubeFailed as error:
        done.unread.append(_unread(kind, namespace, error))
    return []


async def _let_go(kube: Kube, found: Sequence[Manifest], done: _Releases, turns: asyncio.Semaphore) -> None:
    """Those of one namespace."""
    async with turns:
        until_s = asyncio.get_running_loop().time() + SILENCE_S
        for number, one in enumerate(found):
            try:
                await _released(kube, one)
                done.count += 1
            except (KubeProblem, KubeUnreachable) as why:
                done.held.append((one, why))
                if isinstance(why, KubeUnreachable) and asyncio.get_running_loop().time() >= until_s:
                    done.held += [(left, why) for left in found[number + 1 :]]
                    return


def _held(found: Manifest) -> Manifest | None:
    """Which one it is, and who holds it; None: the operator does not."""
    finalizers = found["metadata"].get("finalizers", [])
    if FINALIZER not in finalizers:
        return None
    return {"kind": found["kind"], "metadata": part_of(found)["metadata"] | {"finalizers": finalizers}}


async def _released(kube: Kube, found: Manifest) -> None:
    """One that is gone is let go. Raises KubeError."""
    meta = found["metadata"]
    # With the version, so that a finalizer that somebody adds meanwhile is not lost: the Job is tried again.
    change = {"finalizers": _others(found), "resourceVersion": meta["resourceVersion"]}
    try:
        await kube.merge(found["kind"], meta["namespace"], meta["name"], {"metadata": change})
    except KubeProblem as problem:
        if problem.status != 404:
            raise


def _others(found: Manifest) -> list[str]:
    """Who else holds it."""
    return [one for one in found["metadata"]["finalizers"] if one != FINALIZER]


def _title(found: Manifest) -> str:
    return f"{found['metadata']['namespace']}/{found['metadata']['name']}"


def _patch(found: Manifest) -> str:
    """The line of a shell that lets it go."""
    meta = found["metadata"]
    plural = next(model.naming.plural for model in KINDS if model.__name__ == found["kind"])
    change = json.dumps({"metadata": {"finalizers": _others(found) or None}})
    return f"kubectl -n {meta['namespace']} patch {plural}.{GROUP} {meta['name']} --type=merge -p '{change}'"


def _unread(kind: str, namespace: str, why: KubeError) -> str:
    return f"each {kind} in {f'namespace {namespace}' if namespace else 'all namespaces'} ({_short(why)})"


def _short(why: KubeError) -> str:
    text = str(why)
    return text if len(text) <= WHY_MAX else f"{text[:WHY_MAX]}..."


async def main(verb: str) -> str:
    """Does what the verb says; what it came to."""
    kube = await Kube.connect()
    try:
        if verb == "apply":
            return await apply(kube, json.loads(os.environ["BMQ_HOOK_MANIFEST"]))
        namespaces = tuple(os.environ.get("BMQ_OPERATOR_NAMESPACES", "").split(","))
        labels = json.loads(os.environ["BMQ_HOOK_OPERATOR_LABELS"])
        return await release(
            kube, namespaces, own_namespace=os.environ["BMQ_OPERATOR_NAMESPACE"], operator_labels=labels
        )
    finally:
        await kube.close()


if __name__ == "__main__":
    try:
        print(asyncio.run(main(sys.argv[1])))
    except KubeError as error:
        sys.exit(str(error))
