"""The configuration of nodes: `server.yaml`, secrets, the account of the pods. Pure."""

import base64
import hashlib
import itertools
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import yaml  # type: ignore[import-untyped]

from bmq_operator.allowed import OWN, USE
from bmq_operator.clusters.inputs import Inputs
from bmq_operator.clusters.keys import ADMIN_TOKEN, CLUSTER_SECRET
from bmq_operator.clusters.names import ADMIN_PORT, INTERNAL_PORT, KAFKA_PORT, MINIO_PORT, Names, labels_of
from bmq_operator.clusters.pods import ADVERTISED_FILE
from bmq_operator.kube import Manifest
from bmq_resources.cluster import Cluster

FILE: Final = "server.yaml"
_FAST: Final = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
"""libyaml's, where PyYAML was built with it."""
_AWS: Final = re.compile(r"\.amazonaws\.com(\.cn)?$")
_S3: Final = re.compile(r"s3(-[a-z0-9-]+)?")
_IN_A_HOST: Final = re.compile(r"[a-z0-9.-]*")
_STORE: Final = "store: "
STORE_CHARS_MAX: Final = 8_192
"""A store's URL with all that YAML needs to write it."""
HOST_CHARS_MAX: Final = 253
"""What DNS allows."""


def store_url(cluster: Cluster) -> str:
    """Where everything is kept."""
    store = cluster.spec.store
    if not store.minio.embedded:
        return store.url
    names = Names.of(cluster)
    return f"s3://{store.minio.bucket}?endpoint=http://{names.host(names.minio)}:{MINIO_PORT}"


def store_options(cluster: Cluster) -> dict[str, str]:
    """What stands behind the ? of the store's URL, as its nodes read it: the last of one name, and an empty one is
    none.
    """
    found = dict(parse_qsl(urlsplit(store_url(cluster)).query, keep_blank_values=True))
    return {name: value for name, value in found.items() if value}


def store_place(cluster: Cluster) -> tuple[str, ...]:
    """The same for two Clusters over one store, however their URLs are written: kind, server (or account), bucket and
    prefix.
    """
    try:
        url, options = urlsplit(store_url(cluster)), store_options(cluster)
        server = server_of(options.get("endpoint", ""), namespace=cluster.metadata.namespace)
    except ValueError:
        return (store_url(cluster),)  # none that its nodes could use, which they say
    prefix = "/".join(part for part in url.path.split("/") if part)
    return url.scheme, server, options.get("account", ""), url.netloc, prefix


def server_of(endpoint: str, *, namespace: str) -> str:
    """HOST:PORT of an endpoint that pods of this namespace use, the same for all ways to write it. Raises
    ValueError.
    """
    parts = urlsplit(endpoint)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme, 0)
    host = (parts.hostname or "").removesuffix(".").removesuffix(".cluster.local").removesuffix(".svc")
    if _is_of_aws(host):
        host, port = "", 0  # what it is without an endpoint
    if host and "." not in host and ":" not in host:
        host = f"{host}.{namespace}"  # a Service of the same namespace
    return f"{host}:{port}"


def _is_of_aws(host: str) -> bool:
    """Whether it is S3 itself, of some region or bucket: s3.REGION.amazonaws.com, BUCKET.s3-REGION.amazonaws.com. One
    look at each label: a pattern of all of it goes over a host of many s3. again for each of them.
    """
    found = _AWS.search(host) if len(host) <= HOST_CHARS_MAX else None
    labels = host[: found.start()].split(".") if found is not None else []
    last = max((index for index, label in enumerate(labels) if _S3.fullmatch(label)), default=-1)
    return last >= 0 and all(_IN_A_HOST.fullmatch(label) for label in labels[last:])


def server_yaml(cluster: Cluster) -> str:
    """The file that all nodes share. What differs between roles comes as variables, what differs between pods from
    their names. It takes its time, and is rendered once in a look.
    """
    names = Names.of(cluster)
    spec = cluster.spec
    host = f"{{hostname}}.{names.host(names.nodes)}"
    keys: dict[str, Any] = {
        "store": store_url(cluster),
        "cluster_id": cluster.cluster_id,
        "listen": f"*:{KAFKA_PORT}",
        "advertised_listen": f"{host}:{KAFKA_PORT}",
        "internal_listen": f"*:{INTERNAL_PORT}",
        "admin": f"*:{ADMIN_PORT}",
        "log_level": spec.settings.log_level,
        "log_format": "json",
        "linger_ms": spec.settings.linger_ms,
        "lease_ms": spec.settings.lease_ms,
    }
    if spec.config:
        keys["cluster_config"] = dict(sorted(spec.config.items()))
    return f"# Written by bmq-operator from the Cluster's spec: change that.\n{_dumped(keys, spec.config)}"


def _dumped(keys: dict[str, Any], config: Mapping[str, str]) -> str:
    """Always the same text, or all nodes would start anew: what libyaml folds and escapes otherwise than PyYAML, which
    takes thirty times as long, it is not given.
    """
    texts = (keys["store"], *config, *config.values())
    plain = all(one.isascii() and one.isprintable() for one in texts)
    return str(yaml.dump(keys, Dumper=_FAST if plain else yaml.SafeDumper, sort_keys=False, width=1_000))


def config_hash(text: str, inputs: Inputs) -> str:
    """The hash of this `server.yaml`: changes with what nodes read only when they start."""
    return hashlib.sha256(f"{text}\n{inputs.credentials_digest}".encode()).hexdigest()[:16]


def config_name(cluster: Cluster, inputs: Inputs, text: str) -> str:
    """The ConfigMap with what nodes are to start with next, this `server.yaml`. It never changes: a node that starts
    again, by whatever ends it, starts with what it was made with, and a setting that breaks nodes breaks the one that
    was replaced."""
    there = next((name for name, one in inputs.configs.items() if one == text), "")
    return there or f"{Names.of(cluster).config}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def configuration(cluster: Cluster, inputs: Inputs, text: str) -> list[Manifest]:
    """ServiceAccount, ConfigMaps, one of them with this `server.yaml`, Secrets."""
    names = Names.of(cluster)
    labels = labels_of(names.cluster)
    found: list[Manifest] = [
        account(cluster),
        *(
            _config(names, name, one)
            for name, one in sorted({**inputs.configs, config_name(cluster, inputs, text): text}.items())
        ),
        *(secret(name, labels, keys.texts()) | {"immutable": True} for name, keys in sorted(inputs.keys.items())),
    ]
    if not inputs.auth_is_theirs:
        found.append(
            secret(names.auth, labels, {CLUSTER_SECRET: inputs.cluster_secret, ADMIN_TOKEN: inputs.admin_token})
        )
    if cluster.spec.listeners:
        found.append(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": names.advertised, "labels": labels},
                "data": {ADVERTISED_FILE: inputs.advertised},
            }
        )
    return found


def _config(names: Names, name: str, text: str) -> Manifest:
    there: Manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": labels_of(names.cluster)},
        "data": {FILE: text},
    }
    # That of an operator before stays one that it can change, should it come back.
    return there if name == names.config else there | {"immutable": True}


def account(cluster: Cluster) -> Manifest:
    """The ServiceAccount of its pods, which has no rights."""
    names = Names.of(cluster)
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": names.cluster, "labels": labels_of(names.cluster)},
        "automountServiceAccountToken": False,
    }


def text_of(config: Manifest | None) -> str:
    """What a ConfigMap of nodes says."""
    return str(((config or {}).get("data") or {}).get(FILE, ""))


def store_of_nodes(config: Manifest | None) -> str:
    """The store that this ConfigMap of nodes names; empty: none. No more of it is read than that: somebody else may
    have written it by now, and YAML is read at some hundred KB in a second.
    """
    lines = text_of(config).splitlines()
    first = next((index for index, line in enumerate(lines) if line.startswith(_STORE)), len(lines))
    folded = itertools.takewhile(lambda line: line.startswith(" "), lines[first + 1 :])
    text = "\n".join([*lines[first : first + 1], *folded])
    if len(text) > STORE_CHARS_MAX:
        return ""
    try:
        keys = yaml.safe_load(text)
    except yaml.YAMLError:
        return ""
    found = keys.get("store", "") if isinstance(keys, dict) else ""
    return found if isinstance(found, str) else ""


def secret(name: str, labels: dict[str, str], values: dict[str, str]) -> Manifest:
    """A Secret of texts."""
    data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "labels": labels | {USE: OWN}},
        "type": "Opaque",
        "data": data,
    }
