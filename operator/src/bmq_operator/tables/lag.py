"""How many records are not in a table yet, by the consumer group that its job commits to for show."""

import asyncio
from typing import Final

from bmq.naming.lanes import stored_group
from bmq_admin import pages
from bmq_admin.client import AdminClient
from bmq_admin.errors import AdminError
from bmq_operator.context import Context
from bmq_operator.tables.jobs import GROUP_LENGTH_MAX, TableJob

UNKNOWN: Final = -1
LAG_FRESH_S: Final = 55.0
LAGS_MAX: Final = 10_000


async def lag_of(context: Context, job: TableJob, client: AdminClient | None) -> int:
    """In records; of a lane its own topics are meant. Asked once a minute: each new number is a status written."""
    if client is None:
        return UNKNOWN
    now_s, known = asyncio.get_running_loop().time(), context.known.lags
    key = (job.owner.meta.uid, job.output)
    if key in known and now_s - known[key][0] < LAG_FRESH_S:
        return known[key][1]
    try:
        lag = (await client.ask(pages.group(await _group(job, client))))["lag_records"]
    except AdminError:
        lag = UNKNOWN  # neither group nor lane is there before the first commit
    if len(known) >= LAGS_MAX:
        known.clear()
    known[key] = (now_s, lag)
    return lag


async def _group(job: TableJob, client: AdminClient) -> str:
    """As the cluster calls it; the job names it as it does for the base, and is in the lane by its client id. Raises
    AdminError.
    """
    table = job.table
    group = (
        table.group or f"{'iceberg' if table.iceberg else 'parquet'}-{'-'.join(sorted(job.topics))}"[:GROUP_LENGTH_MAX]
    )
    if not table.lane:
        return group
    return stored_group(table.lane, (await client.ask(pages.lane(table.lane)))["number"], group)
