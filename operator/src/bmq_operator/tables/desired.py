"""All objects of a table, as they are to be: a pure function of the job and the operator's settings.

What Spark's pods need beyond the Spark Operator's own fields goes by pod templates, which need no webhook.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from bmq_operator.clusters.names import TABLES_LABEL
from bmq_operator.clusters.pods import literal, placement_of
from bmq_operator.kube import Manifest
from bmq_operator.spark_settings import DriverDefaults, ExecutorDefaults, SparkSettings
from bmq_operator.tables.arguments import (
    FILES,
    SCHEMA_FILES,
    SCHEMA_FOLDER,
    compact_arguments,
    write_arguments,
    write_file,
)
from bmq_operator.tables.jobs import NEVER, Anew, Part, TableJob
from bmq_operator.tables.places import KIND_LABEL, NAME_LABEL, OWNER_LABEL, PLACE, digest_of, place_of

SPARK_API: Final = "sparkoperator.k8s.io/v1beta2"
PART_LABEL: Final = "bmq.io/table-part"
"""write or compact."""
FAILURES: Final = "bmq.io/failures"
AFTER: Final = "bmq.io/begun-anew-after"
"""Annotations of a stream's driver: how often in a row it was begun anew, and after which end. A change has the Spark
Operator begin anew."""
NUDGED: Final = "bmq.io/nudged"
"""Annotation of an application, when the Spark Operator was made to look at it once more (RFC 3339)."""
MADE_FROM: Final = "bmq.io/made-from"
"""Annotation of a driver: a digest of all that its run was to be. A pod with another one was made before the newest
change."""
_DIGEST_LENGTH: Final = 16
DRIVER_CONTAINER: Final = "spark-kubernetes-driver"
EXECUTOR_CONTAINER: Final = "spark-kubernetes-executor"
GRACE_S: Final = 150
"""A job that is told to end finishes its batch, for 120 s at most."""
LABEL_LENGTH_MAX: Final = 63
_METRICS: Final = {
    "spark.ui.prometheus.enabled": "true",
    "spark.sql.streaming.metricsEnabled": "true",
    "spark.metrics.namespace": "table",
    "spark.metrics.appStatusSource.enabled": "true",
    "spark.executor.processTreeMetrics.enabled": "true",
    "spark.metrics.conf.*.sink.prometheusServlet.class": "org.apache.spark.metrics.sink.PrometheusServlet",
    "spark.metrics.conf.*.sink.prometheusServlet.path": "/metrics/prometheus",
}


def desired(job: TableJob, settings: SparkSettings, *, anew: Anew = NEVER) -> list[Manifest]:
    """ConfigMap, and the applications that write the table and merge its files. `anew`: whether the first was begun
    anew.
    """
    table = job.table
    found = _schema(job)
    write = _application(job, settings, "write", file=write_file(job), arguments=write_arguments(job), anew=anew)
    if table.continuous is not None:
        found.append(_object(job, "SparkApplication", job.name, "write", {**write, "suspend": table.suspend}))
    else:
        found.append(_scheduled(job, job.name, "write", table.schedule, write))
    if job.compacted:
        compact = _application(job, settings, "compact", file=f"{FILES}/compact.py", arguments=compact_arguments(job))
        found.append(_scheduled(job, job.compact_name, "compact", table.compact.schedule, compact))
    return found


def selector(uid: str) -> dict[str, str]:
    """The labels of all that belongs to a resource."""
    return {OWNER_LABEL: uid}


def _object(job: TableJob, kind: str, name: str, part: Part, spec: Manifest) -> Manifest:
    meta = job.owner.meta
    return {
        "apiVersion": SPARK_API,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": meta.namespace,
            "labels": _labels(job, part),
            "annotations": {PLACE: digest_of(place_of(job))},
            "ownerReferences": [_owner(job)],
        },
        "spec": spec,
    }


def _scheduled(job: TableJob, name: str, part: Part, schedule: str, template: Manifest) -> Manifest:
    spec = {
        "schedule": schedule,
        "timeZone": job.table.time_zone,
        "concurrencyPolicy": "Forbid",
        "successfulRunHistoryLimit": 1,
        "failedRunHistoryLimit": 1,
        "suspend": job.table.suspend,
        "template": template,
    }
    return _object(job, "ScheduledSparkApplication", name, part, spec)


def _application(
    job: TableJob, settings: SparkSettings, part: Part, *, file: str, arguments: list[str], anew: Anew = NEVER
) -> Manifest:
    table = job.table
    spec: Manifest = {
        "type": "Python",
        "pythonVersion": "3",
        "mode": "cluster",
        "sparkVersion": settings.version,
        "image": table.image or settings.image,
        "imagePullPolicy": settings.pull_policy,
        "mainApplicationFile": file,
        "arguments": [literal(one) for one in arguments],
        "sparkConf": {**_conf(settings), **table.spark_conf},
        "restartPolicy": {
            "type": "OnFailure",
            "onFailureRetries": 3,
            "onFailureRetryInterval": 10,
            "onSubmissionFailureRetries": 3,
            "onSubmissionFailureRetryInterval": 20,
        },
        "driver": _driver(job, settings, part),
        "executor": _executor(job, settings, part),
    }
    if settings.pull_secrets:
        spec["imagePullSecrets"] = list(settings.pull_secrets)
    begun = {FAILURES: str(anew.failures), AFTER: anew.after} if anew.failures else {}
    digest = hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:_DIGEST_LENGTH]
    spec["driver"]["annotations"] = {MADE_FROM: digest, **begun}
    return spec


def made_from(wanted: Manifest) -> str:
    """The digest that drivers of an application, or of a schedule's runs, are to have."""
    spec = wanted["spec"]
    return str(spec.get("template", spec)["driver"]["annotations"][MADE_FROM])


def _conf(settings: SparkSettings) -> dict[str, str]:
    found = dict(_METRICS) if settings.metrics else {}
    if settings.event_log:
        found |= {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": settings.event_log,
            "spark.eventLog.rolling.enabled": "true",
        }
    return found | settings.conf


def _driver(job: TableJob, settings: SparkSettings, part: Part) -> Manifest:
    found = _pod(job, part, "driver", settings.driver, job.table.resources.driver.written(), container=DRIVER_CONTAINER)
    found["serviceAccount"] = job.table.service_account or settings.service_account
    return found


def _executor(job: TableJob, settings: SparkSettings, part: Part) -> Manifest:
    wanted = job.table.resources.executor
    found = _pod(job, part, "executor", settings.executor, wanted.written(), container=EXECUTOR_CONTAINER)
    found["instances"] = wanted.instances or settings.executor.instances
    return found


def _pod(
    job: TableJob,
    part: Part,
    role: str,
    defaults: DriverDefaults | ExecutorDefaults,
    written: Mapping[str, Any],
    *,
    container: str,
) -> Manifest:
    given = defaults.model_dump(by_alias=True)
    found: Manifest = {
        name: value
        for name in ("cores", "coreRequest", "coreLimit", "memory", "memoryOverhead")
        if (value := written[name] or given[name])
    }
    found["labels"] = {
        **job.table.placement.labels,
        **_labels(job, part),
        "app.kubernetes.io/component": role,
        TABLES_LABEL: job.cluster,
    }
    if job.store.secret_keys:
        found["envSecretKeyRefs"] = {
            name: {"name": secret, "key": key} for name, (secret, key) in job.store.secret_keys.items()
        }
    found["template"] = _template(job, part, container)
    return found


def _template(job: TableJob, part: Part, container: str) -> Manifest:
    placement = job.table.placement
    variables = {**job.store.env, **{one.name: one.value for one in placement.env}}
    main: Manifest = {
        "name": container,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    if variables:
        main["env"] = [{"name": name, "value": literal(value)} for name, value in sorted(variables.items())]
    pod: Manifest = {
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "terminationGracePeriodSeconds": GRACE_S,
        "containers": [main],
        **placement_of(placement, {OWNER_LABEL: job.owner.meta.uid}),
    }
    if part == "write" and (volume := _schema_volume(job)) is not None:
        main["volumeMounts"] = [{"name": "schema", "mountPath": SCHEMA_FOLDER, "readOnly": True}]
        pod["volumes"] = [volume]
    found: Manifest = {"spec": pod}
    if placement.annotations:
        found["metadata"] = {"annotations": placement.annotations}
    return found


def _schema(job: TableJob) -> list[Manifest]:
    """A ConfigMap of the schema that is written in the resource itself."""
    schema = job.table.value_schema
    if schema is None or not schema.text:
        return []
    meta = job.owner.meta
    labels, file = _labels(job, "write"), SCHEMA_FILES.get(job.table.format, "schema")
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": _schema_name(job),
                "namespace": meta.namespace,
                "labels": labels,
                "ownerReferences": [_owner(job)],
            },
            "data": {file: schema.text},
        }
    ]


def _schema_name(job: TableJob) -> str:
    return f"{job.name}-schema"


def _schema_volume(job: TableJob) -> Manifest | None:
    schema = job.table.value_schema
    if schema is None or schema.uri:
        return None
    file = SCHEMA_FILES.get(job.table.format, "schema")
    name, key = (
        (_schema_name(job), file) if schema.text else (schema.config_map_key_ref.name, schema.config_map_key_ref.key)
    )
    return {"name": "schema", "configMap": {"name": name, "items": [{"key": key, "path": file}]}}


def _labels(job: TableJob, part: Part) -> dict[str, str]:
    meta = job.owner.meta
    found = {
        "app.kubernetes.io/name": "bmq-spark",
        "app.kubernetes.io/managed-by": "bmq-operator",
        KIND_LABEL: job.owner.kind,
        OWNER_LABEL: meta.uid,
        PART_LABEL: part,
    }
    # A label has 63 characters at most. Of a longer name the operator hears by its regular looks alone.
    return found | ({NAME_LABEL: meta.name} if len(meta.name) <= LABEL_LENGTH_MAX else {})


def _owner(job: TableJob) -> Manifest:
    owner = job.owner
    return {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.meta.name,
        "uid": owner.meta.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }
