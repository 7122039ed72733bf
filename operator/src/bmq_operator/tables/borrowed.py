"""Whether a table uses only what its author may have it use (allowed.py)."""

from bmq_operator.allowed import why_not_image, why_not_names, why_not_used
from bmq_operator.context import Context
from bmq_operator.tables.jobs import TableJob


async def why_not_allowed(context: Context, job: TableJob) -> str:
    """Why the table may not be written as it stands there, with the remedy; empty: it may. Raises KubeError."""
    allow, spark, table, kube = context.settings.allow, context.settings.spark, job.table, context.kube
    namespace, store = job.owner.meta.namespace, table.store
    names = {name.removeprefix("kafka.") for name in table.consumer_config}
    found = [
        why_not_image(table.image, allow, own=(spark.image,), field="image"),
        why_not_names(table.spark_conf, allow.spark_conf, field="sparkConf", value="allow.sparkConf"),
        why_not_names(names, allow.consumer_config, field="consumerConfig", value="allow.consumerConfig"),
        why_not_names((one.name for one in table.placement.env), allow.env, field="placement.env", value="allow.env"),
    ]
    if table.service_account not in ("", spark.service_account):
        found.append(await why_not_used(kube, namespace, "ServiceAccount", table.service_account, allow.service_accounts, field="serviceAccount"))
    if store.secret_name:
        found.append(await why_not_used(kube, namespace, "Secret", store.secret_name, allow.secrets, field="store.secretName"))
    return next((one for one in found if one), "")
