"""What the chart's Jobs do: `python3 -m bmq_operator.chart_hooks apply|release`.

`apply` applies the Cluster of the chart's values (BMQ_HOOK_MANIFEST, JSON): Helm itself could not in the install that
brings the CRDs, and would delete it in an uninstall. `release` takes bmq's finalizer off all resources once the
operator's pods (BMQ_HOOK_OPERATOR_LABELS) are gone: nobody would do it later.
"""

import asyncio
import json
import os
import sys
from typing import Final

from bmq_operator.answers import part_of
from bmq_operator.kube import Kube, KubeError, KubeProblem, Manifest
from bmq_operator.runner import FINALIZER
from bmq_resources import KINDS

FIELD_MANAGER: Final = "bmq-chart"
WAIT_S: Final = 60


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
    """Takes the finalizer off all resources of these namespaces (one empty one: all). Raises KubeError."""
    for _ in range(WAIT_S):
        if not await kube.each("Pod", own_namespace, keep=part_of, labels=operator_labels):
            break
        await asyncio.sleep(1)
    count = 0
    for kind in (model.__name__ for model in KINDS):
        for namespace in namespaces:
            for found in await _all(kube, kind, namespace):
                count += await _released(kube, kind, found)
    return f"{count} resources were released"


async def _all(kube: Kube, kind: str, namespace: str) -> list[Manifest]:
    try:
        return await kube.each(kind, namespace, keep=_held)
    except KubeProblem as problem:
        if problem.status == 404:  # the CRD is gone, and all of its resources with it
            return []
        raise


def _held(found: Manifest) -> Manifest | None:
    """Which one it is, and who holds it; None: the operator does not."""
    finalizers = found["metadata"].get("finalizers", [])
    return {"metadata": part_of(found)["metadata"] | {"finalizers": finalizers}} if FINALIZER in finalizers else None


async def _released(kube: Kube, kind: str, found: Manifest) -> bool:
    meta = found["metadata"]
    others = [one for one in meta["finalizers"] if one != FINALIZER]
    try:
        # With the version, so that a finalizer that somebody adds meanwhile is not lost: the Job is tried again.
        await kube.merge(
            kind,
            meta["namespace"],
            meta["name"],
            {"metadata": {"finalizers": others, "resourceVersion": meta["resourceVersion"]}},
        )
    except KubeProblem as problem:
        if problem.status != 404:
            raise
    return True


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
