"""What the operator said of an object when it wrote it last, so that a field that is taken away is noticed. Pure, but
for `write`.

Server-side apply removes what its manager once wrote and writes no more. That takes an apply, and an object that has
more than is wanted says by itself nothing of whose that is: Kubernetes' defaults, somebody else's, or the operator's
own of yesterday. So each object carries a digest of the manifest that was applied last; where that is another one, or
there is none, the object is applied anew.
"""

import hashlib
import json
import math
import re
from fractions import Fraction
from typing import Any, Final

from bmq_operator.kube import FIELD_MANAGER, Kube, KubeProblem, Manifest

APPLIED: Final = "bmq.io/applied"
"""The annotation with the digest."""
MAKER: Final = "bmq-operator-made"
"""The field manager of objects between their creation and the first apply."""
_DIGEST_LENGTH: Final = 16
_OF_QUANTITIES: Final = ("requests", "limits")
_OF_VARIABLES: Final = "value"
_QUANTITY: Final = re.compile(
    r"(?P<number>[0-9]{1,64}(\.[0-9]{0,64})?|\.[0-9]{1,64})([eE](?P<exponent>[+-]?[0-9]{1,2})|(?P<unit>[numkMGTPE]|[KMGTPE]i|))"
)
_UNITS: Final = (
    {"": Fraction(1), "m": Fraction(1, 1000), "u": Fraction(1, 1000**2), "n": Fraction(1, 1000**3)}
    | {unit: Fraction(1000**power) for power, unit in enumerate("kMGTPE", 1)}
    | {f"{unit}i": Fraction(1024**power) for power, unit in enumerate("KMGTPE", 1)}
)
_QUANTITY_MAX: Final = Fraction(2**63 - 1)
"""Kubernetes keeps this in place of more."""


def as_wanted(there: Manifest, wanted: Manifest) -> bool:
    """Whether nothing has to be written: this very manifest was applied last, and what it says is still so."""
    return was_applied(there, wanted) and covers(there, wanted)


def was_applied(there: Manifest, wanted: Manifest) -> bool:
    """Whether this manifest is what was applied last, whatever others changed of it since."""
    return (there["metadata"].get("annotations") or {}).get(APPLIED) == digest(wanted)


async def write(kube: Kube, manifest: Manifest, there: Manifest | None) -> Manifest:
    """Makes the object, or brings the very one that was found to what the manifest says. What somebody else made since
    the look stays as it is. Raises KubeError; KubeProblem 409 where something else is there by now than was found, or
    nothing any more.

    An apply makes what is not there, and takes over what is: so what is not there is created first, and what was found
    is named by its uid.
    """
    meta = manifest["metadata"]
    if there is None:
        # Without the digest: should the operator end here, it is applied by the next look.
        there = await kube.create(manifest, manager=MAKER)
    elif any(_wrote(one, FIELD_MANAGER, "Apply") for one in there["metadata"].get("managedFields", ())):
        await _disown(kube, there)
    annotations = {**meta.get("annotations", {}), APPLIED: digest(manifest)}
    applied = await kube.apply(
        {**manifest, "metadata": {**meta, "uid": there["metadata"]["uid"], "annotations": annotations}}
    )
    await _disown(kube, applied)
    return applied


async def _disown(kube: Kube, there: Manifest) -> None:
    """What the operator created belongs to two of its managers, and a field that only one of them gives up would stay:
    the maker gives up all, once the apply has them. Raises KubeError."""
    fields = there["metadata"].get("managedFields", ())
    index = next((index for index, one in enumerate(fields) if _wrote(one, MAKER, "Update")), None)
    if index is None:
        return
    at = f"/metadata/managedFields/{index}"
    operations = [{"op": "test", "path": f"{at}/manager", "value": MAKER}, {"op": "remove", "path": at}]
    try:
        await kube.patch(
            there, [{"op": "test", "path": "/metadata/uid", "value": there["metadata"]["uid"]}, *operations]
        )
    except KubeProblem as problem:
        # it is another object by now, or was written meanwhile: then by the next write
        if problem.status not in (404, 422):
            raise


def _wrote(entry: Manifest, manager: str, operation: str) -> bool:
    return (entry.get("manager"), entry.get("operation")) == (manager, operation) and not entry.get("subresource")


async def make_way(kube: Kube, there: Manifest | None) -> None:
    """Takes away what Kubernetes gave a StatefulSet that it rolled itself, as an older operator had it do. That is
    nobody's, so an apply leaves it, and it is refused where the operator rolls. Raises KubeError."""
    if (
        there is None
        or there["kind"] != "StatefulSet"
        or "rollingUpdate" not in there["spec"].get("updateStrategy", {})
    ):
        return
    meta = there["metadata"]
    by_us = {"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}}}
    await kube.merge("StatefulSet", meta["namespace"], meta["name"], by_us, uid=meta["uid"])


def digest(manifest: Manifest) -> str:
    """A hash of all that the manifest says; of a Secret without its values, which nobody shall guess from it. That they
    differ is seen by `covers`.
    """
    said = manifest | {"data": sorted(manifest.get("data", {}))} if manifest["kind"] == "Secret" else manifest
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:_DIGEST_LENGTH]


def covers(there: Any, wanted: Any) -> bool:
    """Whether what is there says all that is wanted. What Kubernetes adds by itself does not count, lists have the same
    length; it leaves out what is empty, a variable's value too, and writes quantities in a way of its own (500m for
    0.5)."""
    if isinstance(wanted, dict):
        return isinstance(there, dict) and all(_has(there, key, one) for key, one in wanted.items())
    if isinstance(wanted, list):
        return (
            isinstance(there, list)
            and len(there) == len(wanted)
            and all(covers(a, b) for a, b in zip(there, wanted, strict=True))
        )
    return bool(there == wanted)


def _has(there: Manifest, key: str, wanted: Any) -> bool:
    if key not in there:
        return wanted in (None, {}, []) or (key == _OF_VARIABLES and wanted == "")
    if key in _OF_QUANTITIES and isinstance(wanted, dict):
        return isinstance(there[key], dict) and all(
            _thousandths(there[key].get(name)) == _thousandths(one) for name, one in wanted.items()
        )
    return covers(there[key], wanted)


def _thousandths(value: Any) -> Any:
    """A quantity as Kubernetes keeps one in a pod's template, which rounds it up."""
    found = quantity(value)
    return math.ceil(min(found, _QUANTITY_MAX) * 1000) if isinstance(found, Fraction) else found


def quantity(value: Any) -> Any:
    """A quantity of Kubernetes' as a number; anything else as it is."""
    found = _QUANTITY.fullmatch(str(value))
    if found is None:
        return value
    scale = _UNITS[found["unit"]] if found["exponent"] is None else Fraction(10) ** int(found["exponent"])
    return Fraction(found["number"]) * scale
