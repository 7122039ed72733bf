"""Which fields of resources reach for what is not their own, and by which rule of `allowed` each of them may.

`RULES` is by model and field, so that a part that several kinds have is held to its rule in all of them. A test walks
over all models: a field of text that is neither here nor said to be the resource's own fails it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pydantic import BaseModel

from bmq_operator.allowed import (
    EVERY_TAINT,
    VALUES,
    Allowed,
    matches,
    why_not_affinity,
    why_not_database,
    why_not_endpoint,
    why_not_image,
    why_not_labelled,
    why_not_names,
    why_not_settings,
    why_not_text,
    why_not_variables,
)
from bmq_operator.conditions import Finding
from bmq_operator.kube import Kube
from bmq_resources.cluster import Credentials, EmbeddedMinio, Listener, Settings, Store
from bmq_resources.iceberg import Iceberg
from bmq_resources.pods import Image, Placement
from bmq_resources.tables import ConfigMapKey, StoreAccess, Table, ValueSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """What needs no leave: the operator's own images, and its account for drivers."""

    images: tuple[str, ...]
    account: str = ""
    elsewhere: str = ""
    """The namespace of its pods, where that is not its author's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """An object of the namespace that is used, where its label or the chart says so."""

    kind: str
    name: str
    field: str


Rule: TypeAlias = Callable[[Any, str, Allowed, Own], "Iterator[str | Named]"]
"""Tells of a part and the path of its field why it may not be as it is written, and what is to be looked at for
that."""


async def why_not_allowed(
    kube: Kube, spec: BaseModel, *, namespace: str, allow: Allowed, own: Own, path: str = ""
) -> Finding | None:
    """Why nothing may be made of a spec, or of the part at `path`, as it is written; None: all of it may be used.
    Raises KubeError.
    """
    found = list(reaches(spec, allow=allow, own=own, path=path))
    if why := next((one for one in found if isinstance(one, str) and one), ""):
        return Finding(status="False", reason="NotAllowed", message=why)
    for one in found:
        if not isinstance(one, Named) or matches(one.name, getattr(allow, _PATTERNS[one.kind])):
            continue
        there = await kube.get(one.kind, namespace, one.name)
        if why := why_not_labelled(there, (), kind=one.kind, name=one.name, namespace=namespace, field=one.field):
            return Finding(
                status="False", reason="NotAllowed" if there is not None else f"{one.kind}Missing", message=why
            )
    return None


def why_never_allowed(spec: BaseModel, *, allow: Allowed, own: Own) -> str:
    """The same of a spec that names no objects. Pure."""
    return next((one for one in reaches(spec, allow=allow, own=own) if isinstance(one, str) and one), "")


def reaches(part: BaseModel, *, allow: Allowed, own: Own, path: str = "") -> "Iterator[str | Named]":
    """What all fields below come to: texts that say why not (empty: it may be), and objects that are named."""
    for name, field in type(part).model_fields.items():
        value = getattr(part, name)
        where = f"{path}.{field.alias or name}".lstrip(".")
        if (rule := rule_of(type(part), name)) is not None:
            yield from rule(part, where, allow, own)
        for index, inner in enumerate(value) if isinstance(value, list) else [(-1, value)]:
            if isinstance(inner, BaseModel):
                yield from reaches(inner, allow=allow, own=own, path=where if index < 0 else f"{where}[{index}]")


def rule_of(model: type[BaseModel], field: str) -> Rule | None:
    """By the model, or one that it extends."""
    return next((RULES[kind, field] for kind in model.__mro__ if (kind, field) in RULES), None)


def _image_of_cluster(image: Image, field: str, allow: Allowed, own: Own) -> "Iterator[str | Named]":
    yield why_not_image(image.repository, allow, own=own.images, field=field)


def _pull_secrets(image: Image, field: str, allow: Allowed, own: Own) -> "Iterator[str | Named]":
    yield from (Named(kind="Secret", name=one, field=field) for one in image.pull_secrets)


def _keys(keys: Credentials | StoreAccess, field: str, allow: Allowed, own: Own) -> "Iterator[str | Named]":
    if keys.secret_name:
        yield Named(kind="Secret", name=keys.secret_name, field=field)


def _minio(minio: EmbeddedMinio, field: str, allow: Allowed, own: Own) -> "Iterator[str | Named]":
    if minio.embedded:
        yield why_not_image(minio.image, allow, own=own.images, field=field)


def _storage_class(minio: EmbeddedMinio, field: str, allow: Allowed, own: Own) -> "Iterator[str | Named]":
    if minio.embedded and minio.storage_class_name:
        yield why_not_names(
            [minio.storage_class_name], allow.storage_classes, field=field, value="allow.storageClasses"
        )


def _of_services(listener: Listener, field: str, allow: Allowed, own: Own) -> "Iterator[str | Named]":
    yield why_not_names(listener.annotations, allow.service_annotations, field=field, value="allow.serviceAnnotations")


def _priority(placement: Placement, field: str, allow: Allowed, own: Own) -> "Iterator[str | Named]":
    if placement.priority_class_name:
        yield why_not_names(
            [placement.priority_class_name], allow.priority_classes, field=field, value="allow.priorityClasses"
        )


def _affinity(placement: Placement, field: str, allow: Allowed, own: Own) -> "Iterator[str | Named]":
    yield why_not_affinity(placement.affinity, allow, elsewhere=own.elsewhere, field=field)


def _endpoint(store: Store, field: str, allow: Allowed, own: Own) -> "Iterator[str | Named]":
    yield why_not_endpoint(store.url, allow, field=field)


def _annotations(placement: Placement, field: str, allow: Allowed, own: Own) -> "Iterator[str | Named]":
    yield why_not_names(placement.annotations, allow.annotations, field=field, value="allow.annotations")


def _labels(placement: Placement, field: str, allow: Allowed, own: Own) -> "Iterator[str | Named]":
    yield why_not_names(placement.labels, allow.labels, field=field, value="allow.labels")


def _tolerations(placement: Placement, field: str, allow: Allowed, own: Own) -> "Iterator[str | Named]":
    yield why_not_names(
        (one.key or EVERY_TAINT for one in placement.tolerations),
        allow.tolerations,
        field=field,
        value="allow.tolerations",
    )


def _env(placement: Placement, field: str, allow: Allowed, own: Own) -> "Iterator[str | Named]":
    names = [one.name for one in placement.env]
    yield why_not_variables(names, field=field) or why_not_names(names, allow.env, field=field, value="allow.env")


def _keys_of_server(settings: Settings, field: str, allow: Allowed, own: Own) -> "Iterator[str | Named]":
    yield why_not_variables(settings.env, field=field)


def _image_of_table(table: Table, field: str, allow: Allowed, own: Own) -> "Iterator[str | Named]":
    yield why_not_image(table.image, allow, own=own.images, field=field)


def _account(table: Table, field: str, allow: Allowed, own: Own) -> "Iterator[str | Named]":
    if table.service_account not in ("", own.account):
        yield Named(kind="ServiceAccount", name=table.service_account, field=field)


def _spark_conf(table: Table, field: str, allow: Allowed, own: Own) -> "Iterator[str | Named]":
    yield why_not_settings(table.spark_conf, allow.spark_conf, field=field, value="allow.sparkConf")


def _consumer_config(table: Table, field: str, allow: Allowed, own: Own) -> "Iterator[str | Named]":
    # One by one: of a name that stands there with and without kafka. both values count.
    for name, value in sorted(table.consumer_config.items()):
        yield why_not_settings(
            {name.removeprefix("kafka."): value}, allow.consumer_config, field=field, value="allow.consumerConfig"
        )


def _text(field_name: str) -> Rule:
    """Texts that go into arguments and settings of Spark's."""

    def rule(part: BaseModel, field: str, allow: Allowed, own: Own) -> "Iterator[str | Named]":
        yield why_not_text(getattr(part, field_name), field=field)

    return rule


def _config_map(key: ConfigMapKey, field: str, allow: Allowed, own: Own) -> "Iterator[str | Named]":
    if key.name:
        yield Named(kind="ConfigMap", name=key.name, field=field)


def _catalog(iceberg: Iceberg, field: str, allow: Allowed, own: Own) -> "Iterator[str | Named]":
    why = why_not_text(iceberg.catalog_uri, field=field)
    yield (
        why_not_database(iceberg.catalog_uri, allow, field=field) if not why and iceberg.catalog_type == "sql" else why
    )


_TEXTS: Final[Mapping[type[BaseModel], tuple[str, ...]]] = {
    Table: ("output", "checkpoint", "registry", "group"),
    StoreAccess: ("endpoint",),
    ValueSchema: ("uri",),
}
"""Those whose patterns let a ${ stand in them."""
RULES: Final[Mapping[tuple[type[BaseModel], str], Rule]] = {
    (Image, "repository"): _image_of_cluster,
    (Image, "pull_secrets"): _pull_secrets,
    (Store, "url"): _endpoint,
    (Credentials, "secret_name"): _keys,
    (EmbeddedMinio, "image"): _minio,
    (EmbeddedMinio, "storage_class_name"): _storage_class,
    (Listener, "annotations"): _of_services,
    (Placement, "affinity"): _affinity,
    (Placement, "priority_class_name"): _priority,
    (Placement, "annotations"): _annotations,
    (Placement, "labels"): _labels,
    (Placement, "tolerations"): _tolerations,
    (Placement, "env"): _env,
    (Settings, "env"): _keys_of_server,
    (Table, "image"): _image_of_table,
    (Table, "service_account"): _account,
    (Table, "spark_conf"): _spark_conf,
    (Table, "consumer_config"): _consumer_config,
    (StoreAccess, "secret_name"): _keys,
    (ConfigMapKey, "name"): _config_map,
    (Iceberg, "catalog_uri"): _catalog,
    **{(model, name): _text(name) for model, names in _TEXTS.items() for name in names},
}
_PATTERNS: Final = {
    kind: "".join(f"_{one.lower()}" if one.isupper() else one for one in value) for kind, value in VALUES.items()
}
"""A kind's field of `Allowed`."""
