"""Whose a table is, where several resources name one place: the older resource's. Read from the API server once for all that ask within seconds."""

from bmq_operator.context import Context
from bmq_operator.rivals import Rival, winner
from bmq_operator.tables.jobs import TableJob
from bmq_operator.tables.places import Place, claims, place_of

_KEY = "claims"


async def taken_by(context: Context, job: TableJob) -> Rival | None:
    """The resource that the table's place is of; None: it is the job's own. Raises KubeError."""

    async def read() -> dict[Place, list[Rival]]:
        listed = {
            kind: [one for namespace in context.settings.watched_namespaces for one in await context.kube.list(kind, namespace)]
            for kind in ("Topic", "ParquetSink", "Cluster")
        }
        return claims(topics=listed["Topic"], sinks=listed["ParquetSink"], clusters=listed["Cluster"])

    known, place, uid = context.known.table_claims, place_of(job), job.owner.meta.uid
    rivals = (await known.get(_KEY, read)).get(place, [])
    if all(one.uid != uid for one in rivals):  # read before this resource said so, and so perhaps before an older one did
        known.forget(_KEY)
        rivals = (await known.get(_KEY, read)).get(place, [])
    return winner(job.owner.meta, owned=False, rivals=[one for one in rivals if one.uid != uid])
