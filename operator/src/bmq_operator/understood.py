"""From a resource as the API server has it to what its model says. Pure."""

from typing import Any, Final, TypeVar

from pydantic import ValidationError

from bmq_operator.kube import Manifest
from bmq_resources.base import GROUP, ObjectMeta, Resource
from bmq_resources.checks import explained

_OWN: Final = f"{GROUP}/"
AnyResource = TypeVar("AnyResource", bound=Resource)


def understood(model: type[AnyResource], manifest: Manifest) -> AnyResource:
    """The resource. Of its status, what another version wrote and this one does not know is forgotten. Raises
    ValidationError.
    """
    document = _known(manifest)
    try:
        return model.model_validate(document)
    except ValidationError as error:
        unknown = {one["loc"][1] for one in error.errors() if one["loc"][:1] == ("status",) and len(one["loc"]) > 1}
        if not unknown:
            raise
        status = {name: value for name, value in document["status"].items() if name not in unknown}
        return model.model_validate(document | {"status": status})


def which(meta: ObjectMeta) -> ObjectMeta:
    """Which resource it is, and since when: all that is remembered of another one's."""
    return meta.model_copy(update={"labels": {}, "annotations": {}, "finalizers": []})


def why_not_understood(model: type[Resource], manifest: Manifest, error: ValidationError) -> str:
    """What is wrong with the first field that is, and what helps."""
    return str(explained(model, _known(manifest), error)[0])


def _known(manifest: Manifest) -> dict[str, Any]:
    """Resources are remembered for a while, and a megabyte of labels and annotations is anybody's."""
    found: dict[str, Any] = {
        key: manifest[key] for key in ("apiVersion", "kind", "metadata", "spec", "status") if key in manifest
    }
    meta = found.get("metadata")
    if not isinstance(meta, dict):
        return found
    annotations = meta.get("annotations")
    own = (
        {}
        if not isinstance(annotations, dict)
        else {name: text for name, text in annotations.items() if name.startswith(_OWN)}
    )
    return found | {"metadata": {**meta, "labels": {}, "annotations": own}}
