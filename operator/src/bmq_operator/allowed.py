"""What a resource may use that is not its own: images, Secrets, ServiceAccounts, settings that reach beyond what it is
for. Pure.

Who may write a resource need not be one who may read Secrets, run pods under any account, or choose images. So a Secret
or a ServiceAccount is used where its own labels say so, as whoever may write those might use it anyway, or where the
chart allows its name; all else the chart alone allows.
"""

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from bmq.runtime.store_names import host_of, odd_name, parts_of
from bmq_operator.kube import Manifest
from bmq_resources.pods import OPERATORS_OWN_ENV

USE: Final = "bmq.io/use"
"""The label; operators' own Secrets have it too, with another value, so that one watch sees all that matter."""
ALLOWED: Final = "allowed"
OWN: Final = "own"
_NAMES_CODE: Final = re.compile(r"(class|classes|classname|listeners)$", re.IGNORECASE)
"""Settings of Spark and of Kafka whose values are classes to load: a pattern with * allows none of them, only their
whole name does."""
_CLASS: Final = re.compile(r"\s*[A-Za-z_$][\w$]*(\.[A-Za-z_$][\w$]*)+\s*")
_SETTING: Final = re.compile(r"[A-Za-z0-9._$-]+")
_CODEC: Final = re.compile(r"codec(name)?$", re.IGNORECASE)
_CODECS: Final = frozenset(("none", "uncompressed", "lz4", "lz4_raw", "lzf", "snappy", "zstd", "gzip", "brotli"))
"""What Spark knows by a word of its own; any other word is the name of a class."""
_JDBC: Final = re.compile(r"jdbc:(?P<driver>[A-Za-z0-9]+):(?P<where>[^?;]*)[?;]?(?P<parameters>.*)", re.DOTALL)
_JDBC_PLACE: Final = re.compile(r"(//[A-Za-z0-9.,:_\[\]-]*/)?[A-Za-z0-9_.-]*")
"""HOST:PORT/DATABASE: drivers take settings, and names of users, in other characters."""
EVERY_TAINT: Final = "every taint (a toleration without a key)"


class Allowed(BaseModel):
    """Patterns, in which * stands for any characters: the chart's value `allow`."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)

    images: tuple[str, ...] = ("minio/minio",)
    """Without tags, besides the repositories of the operator's own image and that of Spark."""
    secrets: tuple[str, ...] = ()
    config_maps: tuple[str, ...] = ()
    service_accounts: tuple[str, ...] = ()
    priority_classes: tuple[str, ...] = ()
    affinity_namespaces: tuple[str, ...] = ()
    """Namespaces whose pods a required podAntiAffinity may keep off its nodes, besides the author's own; * stands for a
    namespaceSelector, too."""
    store_endpoints: tuple[str, ...] = ("*.googleapis.com", "*.blob.core.windows.net")
    """Hosts to which nodes may show an identity of theirs: those of Google's and of Azure's stores take it as it is,
    while keys of S3 only sign."""
    node_ports: int = Field(default=200, ge=0)
    """How many ports of all nodes the listeners of one Cluster may have: all of Kubernetes has some 2,700 of them."""
    storage_classes: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ("prometheus.io/*",)
    """Names of annotations of pods: admission webhooks, networks and clouds act on them, with rights that the author
    need not have."""
    labels: tuple[str, ...] = ()
    """Names of labels of pods: by them Services send traffic, and NetworkPolicies and webhooks let through."""
    service_annotations: tuple[str, ...] = (
        "cloud.google.com/load-balancer-type",
        "networking.gke.io/load-balancer-type",
        "service.beta.kubernetes.io/aws-load-balancer-internal",
        "service.beta.kubernetes.io/aws-load-balancer-nlb-target-type",
        "service.beta.kubernetes.io/aws-load-balancer-scheme",
        "service.beta.kubernetes.io/aws-load-balancer-type",
        "service.beta.kubernetes.io/azure-load-balancer-internal",
    )
    """Names of annotations of listeners' Services: none that takes a host's name, an address or a certificate."""
    tolerations: tuple[str, ...] = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    """Keys of taints that pods may put up with."""
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
    """Names of tables' sparkConf: none that loads code, or changes which pods there are and what they see. * stands for
    no name of a class."""
    consumer_config: tuple[str, ...] = (
        "check.crcs",
        "client.dns.lookup",
        "client.rack",
        "fetch.*",
        "max.*",
        "*.bytes",
        "*.ms",
    )
    """Names of tables' consumerConfig, with and without kafka. before them."""
    env: tuple[str, ...] = ("AWS_MAX_ATTEMPTS", "AWS_REGION", "AWS_RETRY_MODE", "BMQ_*", "LANG", "LC_*", "TZ")
    """Names of variables in placement.env: none by which code is run, or an identity proved to somebody else
    (AWS_ENDPOINT_URL_STS)."""
    jdbc_drivers: tuple[str, ...] = ("postgresql",)
    """Which JDBC drivers tables' iceberg.catalogUri may name."""
    jdbc_parameters: tuple[str, ...] = (
        "applicationName",
        "connectTimeout",
        "currentSchema",
        "loginTimeout",
        "socketTimeout",
        "ssl",
        "sslmode",
        "targetServerType",
        "tcpKeepAlive",
        "user",
    )
    """Which parameters a JDBC URL in tables' iceberg.catalogUri may have: others name classes to load, and files to
    read."""


VALUES: Final = {"Secret": "secrets", "ConfigMap": "configMaps", "ServiceAccount": "serviceAccounts"}
"""The chart's value that allows objects of a kind by name."""


def why_not_image(image: str, allowed: Allowed, *, own: Iterable[str], field: str) -> str:
    """Why this image may not be run; empty: it may. `own`: the operator's and Spark's."""
    repository = without_tag(image)
    if not image or repository in {without_tag(one) for one in own} or matches(repository, allowed.images):
        return ""
    return (
        f"{field}: the image {repository} is none that the operator runs: leave it out, or have it added to "
        "allow.images of bmq's chart"
    )


def why_not_affinity(affinity: Mapping[str, Any], allowed: Allowed, *, elsewhere: str, field: str) -> str:
    """Why pods may not have this affinity; empty: they may. Kubernetes keeps pods that an anti-affinity matches off the
    nodes of whoever requires it, in whatever namespace they are. `elsewhere`: the pods' namespace, where that is not
    the author's.
    """
    anti = affinity.get("podAntiAffinity")
    required = anti.get("requiredDuringSchedulingIgnoredDuringExecution") if isinstance(anti, dict) else None
    for term in required if isinstance(required, list) else ():
        if not isinstance(term, dict):
            continue
        named = term.get("namespaces")
        others = [str(one) for one in named] if isinstance(named, list) else []
        if term.get("namespaceSelector") is not None:
            others.append("*")
        if not others and elsewhere:
            others.append(elsewhere)
        if why := why_not_names(others, allowed.affinity_namespaces, field=field, value="allow.affinityNamespaces"):
            return f"{why}, or prefer it instead of requiring it: it keeps pods of others off its nodes"
    return ""


def why_not_endpoint(url: str, allowed: Allowed, *, field: str) -> str:
    """Why nodes may not show this store their identity; empty: they may, or it takes none as it is. What its parts lead
    to has to be certain, of S3 too: its region names the host that gives keys for an identity.
    """
    try:
        parts = parts_of(url)
    except ValueError as error:
        return f"{field}: {url!r} is no URL of a store ({error}): write s3://BUCKET, gs://BUCKET or az://CONTAINER"
    given = {name: parts.options.get(name, "") for name in ("endpoint", "account", "region")}
    if odd := odd_name(parts.scheme, bucket=parts.bucket, **given):
        return f"{field}: {odd}"
    if parts.scheme not in ("gs", "az") or not given["endpoint"]:
        return ""
    return why_not_names(
        [host_of(given["endpoint"])], allowed.store_endpoints, field=field, value="allow.storeEndpoints"
    )


PREFIX: Final = "BMQ_"
_SECRET_ENDS: Final = ("_ACCEPTED", "_FILE")
"""How the names of those variables of bmq end that take secrets, tokens and listeners from elsewhere."""
_IDENTITY: Final = ("BMQ_NODE_ID_BASE", "BMQ_LANE", "AZURE_STORAGE_ACCOUNT_NAME")


def why_not_names(names: Iterable[str], patterns: tuple[str, ...], *, field: str, value: str) -> str:
    """Why one of the names may not be written; empty: all may. `value`: where the chart allows them."""
    refused = next((one for one in sorted(names) if not _allows(one, patterns)), None)
    if refused is None:
        return ""
    return (
        f"{field}: {refused or 'an empty name'} is none that the operator takes: leave it out, or have it added "
        f"to {value} of bmq's chart"
    )


def why_not_variables(names: Iterable[str], *, field: str) -> str:
    """Why one of the names is no variable of nodes' pods, whatever the chart allows. `bmq server` reads its own in any
    case of letters.
    """
    for name in sorted(names):
        folded = name.upper()
        if folded.startswith(PREFIX) and name != folded:
            return f"{field}: {name}: write variables of bmq in capital letters: {folded}"
        if (
            folded in OPERATORS_OWN_ENV
            or (folded.startswith(PREFIX) and folded.endswith(_SECRET_ENDS))
            or folded in _IDENTITY
        ):
            return (
                f"{field}: {name}: roles, node ids, store, cluster id, secrets and tokens of nodes are the "
                "operator's: leave it out"
            )
        if folded.startswith("AWS_ENDPOINT_URL"):
            return f"{field}: {name}: leave it out, and name the store's server by endpoint in spec.store.url"
    return ""


def why_not_settings(settings: Mapping[str, str], patterns: tuple[str, ...], *, field: str, value: str) -> str:
    """The same of names with values: what a pattern with * allows may not name code to load either."""
    if (unnamed := next((one for one in sorted(settings) if _SETTING.fullmatch(one) is None), None)) is not None:
        # Behind a = or a new line another setting would begin where names and values are put together.
        what = f"{field}: {unnamed[:100]!r} is no name of a setting, whatever {value} of bmq's chart allows"
        return f"{what}: write letters, digits, '.', '-', '_' and '$'"
    if why := why_not_names(settings, patterns, field=field, value=value):
        return why
    for name, one in sorted(settings.items()):
        if why := why_not_text(one, field=f"{field}: {name}"):
            return why
    refused = next(
        (name for name, one in sorted(settings.items()) if name not in patterns and _names_class(name, one)), ""
    )
    if not refused:
        return ""
    said = f"{field}: {refused} would load the class {settings[refused].strip()[:100]!r}"
    known = f"write one of {', '.join(sorted(_CODECS))}" if _CODEC.search(refused) else "leave it out"
    return f"{said}: {known}, or have {refused} itself added to {value} of bmq's chart"


def why_not_text(text: str, *, field: str) -> str:
    """Why this text may not be; empty: it may. Spark and Hadoop put variables in place of ${env:NAME} and ${env.NAME},
    the kubelet of $(NAME).
    """
    if "${" not in text and "$(" not in text:
        return ""
    return (
        f"{field}: what stands behind ${{ or $( would be a variable of the driver's, keys among them: write the "
        "value itself"
    )


def why_not_database(uri: str, allowed: Allowed, *, field: str) -> str:
    """Why this JDBC URL may not be opened; empty: it may. By what stands in one, drivers load classes, read files and
    run statements.
    """
    found = _JDBC.fullmatch(uri)
    if found is None or _JDBC_PLACE.fullmatch(found["where"]) is None:
        return (
            f"{field}: this is no address of a database that the operator takes: write "
            "jdbc:postgresql://HOST:PORT/DATABASE"
        )
    if why := why_not_names(
        (found["driver"],), allowed.jdbc_drivers, field=f"{field}: the driver", value="allow.jdbcDrivers"
    ):
        return why
    names = {one.partition("=")[0] for one in re.split("[&;]", found["parameters"]) if one}
    return why_not_names(names, allowed.jdbc_parameters, field=f"{field}: the parameter", value="allow.jdbcParameters")


def why_not_labelled(
    there: Manifest | None, patterns: tuple[str, ...], *, kind: str, name: str, namespace: str, field: str
) -> str:
    """Why this object may not be used; empty: it may. One that is not there yet says nothing, and might never say that
    it may be used.
    """
    if matches(name, patterns):
        return ""
    if there is None:
        return (
            f"{field}: there is no {kind} {name!r} in namespace {namespace}: create it with the label "
            f"{USE}={ALLOWED}, or name another one"
        )
    if _labels(there).get(USE) == ALLOWED:
        return ""
    return (
        f"{field}: the {kind} {name} does not say that it may be used by bmq's resources: label it "
        f"{USE}={ALLOWED}, or have its name added to allow.{VALUES[kind]} of bmq's chart"
    )


def without_tag(image: str) -> str:
    """REPOSITORY of REPOSITORY:TAG, REPOSITORY@DIGEST and REPOSITORY."""
    repository = image.partition("@")[0]
    head, colon, tail = repository.rpartition(":")
    return head if colon and "/" not in tail else repository


def _names_class(name: str, value: str) -> bool:
    if _CODEC.search(name):
        return value.strip().lower() not in _CODECS
    return any(_CLASS.fullmatch(one) for one in value.split(","))


def _labels(manifest: Manifest) -> Mapping[str, str]:
    return manifest["metadata"].get("labels") or {}


def _allows(name: str, patterns: tuple[str, ...]) -> bool:
    # A space behind a name would make it another one here, and none where it is read.
    return name in patterns if _NAMES_CODE.search(name.strip()) else matches(name, patterns)


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether one of the patterns stands for the name."""
    return any(fnmatchcase(name, one) for one in patterns)
