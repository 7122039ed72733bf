"""What a bug, or a token that cannot be sent, comes to: the resource tells that it is not looked at, and is not Ready
by what was so before.
"""

import asyncio
import base64

import pytest
from clusters_world import World, cluster, run

from bmq_admin.client import AdminClient
from bmq_admin.errors import AdminUnreachable
from bmq_operator.context import Context
from bmq_operator.outcome import Outcome
from bmq_operator.runner import Kind, Runner
from bmq_operator.workqueue import Key, WorkQueue
from bmq_resources.cluster import Cluster

UNSENDABLE = "schlüssel-für-prüfer-äöü"


def test_after_a_bug_in_a_look_ready_is_not_known() -> None:
    async def fails(context: Context, resource: Cluster) -> Outcome:
        raise UnicodeEncodeError("ascii", "ü", 0, 1, "of a test")

    async def use(world: World) -> None:
        ready = {"type": "Ready", "status": "True", "reason": "Ready", "lastTransitionTime": "2001-09-09T01:46:40Z"}
        world.there("Cluster", "prod")["status"] = {"conditions": [ready, {**ready, "type": "Progressing"}]}
        runner = Runner(
            world.context, WorkQueue(), {"Cluster": Kind(model=Cluster, reconcile=fails, holds=lambda _: False)}
        )
        for _ in range(2):
            with pytest.raises(UnicodeEncodeError):
                await runner._reconcile(Key("Cluster", "shop", "prod"))
        status, reason, text = world.ready("prod")
        assert (status, reason) == ("Unknown", "NotLookedAt") and "UnicodeEncodeError" in text
        assert [one["type"] for one in world.there("Cluster", "prod")["status"]["conditions"]] == [
            "Ready",
            "Progressing",
        ]

    run(use, cluster())


def test_a_token_that_cannot_be_sent_is_no_bug() -> None:
    async def use() -> None:
        client = AdminClient("http://127.0.0.1:1", token=UNSENDABLE)
        with pytest.raises(AdminUnreachable, match="not printable ASCII") as told:
            await client.get("cluster")
        assert UNSENDABLE not in str(told.value)
        await client.close()

    asyncio.run(use())


def test_a_token_that_cannot_be_sent_is_refused_where_it_is_written() -> None:
    async def use(world: World) -> None:
        for _ in range(2):
            await world.look("prod")
            world.pods_are_made()
        world.there("Secret", "prod-auth")["data"]["admin-token"] = base64.b64encode(UNSENDABLE.encode()).decode()
        status, reason, text = await world.look("prod")
        assert (status, reason) == ("False", "SecretUnusable") and "admin-token" in text and UNSENDABLE not in text

    run(use, cluster())
