"""What a resource may use that is not its own: images, Secrets, ServiceAccounts, settings that reach beyond what it is for. Pure, but for two reads.

Who may write a resource need not be one who may read Secrets, run pods under any account, or choose images. So a Secret or a ServiceAccount is used
where its own labels say so, as whoever may write those might use it anyway, or where the chart allows its name; all else the chart alone allows.
"""

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Final

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from bmq_operator.kube import Kube, Manifest

USE: Final = "bmq.io/use"
"""The label; operators' own Secrets have it too, with another value, so that one watch sees all that matter."""
ALLOWED: Final = "allowed"
OWN: Final = "own"
_NAMES_CODE: Final = re.compile(r"(class|classes|classname|listeners)$", re.IGNORECASE)
"""Settings of Spark and of Kafka whose values are classes to load: a pattern with * allows none of them, only their whole name does."""


class Allowed(BaseModel):
    """Patterns, in which * stands for any characters: the chart's value `allow`."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)

    images: tuple[str, ...] = ("minio/minio",)
    """Without tags, besides the repositories of the operator's own image and that of Spark."""
    secrets: tuple[str, ...] = ()
    service_accounts: tuple[str, ...] = ()
    spark_conf: tuple[str, ...] = (
        "spark.default.parallelism",
        "spark.io.compression.*",
        "spark.log.level",
        "spark.memory.*",
        "spark.network.timeout",
        "spark.shuffle.compress",
        "spark.speculation*",
        "spark.sql.adaptive.*",
        "spark.sql.files.*",
        "spark.sql.parquet.*",
        "spark.sql.session.timeZone",
        "spark.sql.shuffle.partitions",
        "spark.sql.streaming.*",
        "spark.task.*",
    )
    """Names of tables' sparkConf: none that loads code, or changes which pods there are and what they see. * stands for no name of a class."""
    consumer_config: tuple[str, ...] = ("check.crcs", "client.dns.lookup", "client.rack", "fetch.*", "max.*", "*.bytes", "*.ms")
    """Names of tables' consumerConfig, with and without kafka. before them."""
    env: tuple[str, ...] = ("AWS_ENDPOINT_URL*", "AWS_MAX_ATTEMPTS", "AWS_REGION", "AWS_RETRY_MODE", "BMQ_*", "LANG", "LC_*", "TZ")
    """Names of tables' placement.env."""


def why_not_image(image: str, allowed: Allowed, *, own: Iterable[str], field: str) -> str:
    """Why this image may not be run; empty: it may. `own`: the operator's and Spark's."""
    repository = without_tag(image)
    if not image or repository in {without_tag(one) for one in own} or _matches(repository, allowed.images):
        return ""
    return f"{field}: the image {repository} is none that the operator runs: leave it out, or have it added to allow.images of bmq's chart"


def why_not_names(names: Iterable[str], patterns: tuple[str, ...], *, field: str, value: str) -> str:
    """Why one of the names may not be written; empty: all may. `value`: where the chart allows them."""
    refused = next((one for one in sorted(names) if not _allows(one, patterns)), "")
    return f"{field}: {refused} is none that the operator takes: leave it out, or have it added to {value} of bmq's chart" if refused else ""


async def why_not_used(kube: Kube, namespace: str, kind: str, name: str, patterns: tuple[str, ...], *, field: str) -> str:
    """Why this Secret or ServiceAccount may not be used; empty: it may, or it is not there, which is told elsewhere. Raises KubeError."""
    if _matches(name, patterns):
        return ""
    return why_not_labelled(await kube.get(kind, namespace, name), patterns, field=field)


def why_not_labelled(there: Manifest | None, patterns: tuple[str, ...], *, field: str) -> str:
    """The same of one that was read."""
    if there is None or _matches(there["metadata"]["name"], patterns) or _labels(there).get(USE) == ALLOWED:
        return ""
    kind, name = there["kind"], there["metadata"]["name"]
    value = {"Secret": "secrets", "ServiceAccount": "serviceAccounts"}[kind]
    return (
        f"{field}: the {kind} {name} does not say that it may be used by bmq's resources: label it {USE}={ALLOWED}, or have its name added to "
        f"allow.{value} of bmq's chart"
    )


def without_tag(image: str) -> str:
    """REPOSITORY of REPOSITORY:TAG, REPOSITORY@DIGEST and REPOSITORY."""
    repository = image.partition("@")[0]
    head, colon, tail = repository.rpartition(":")
    return head if colon and "/" not in tail else repository


def _labels(manifest: Manifest) -> Mapping[str, str]:
    return manifest["metadata"].get("labels") or {}


def _allows(name: str, patterns: tuple[str, ...]) -> bool:
    return name in patterns if _NAMES_CODE.search(name) else _matches(name, patterns)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, one) for one in patterns)
