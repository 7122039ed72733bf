"""One leading controller over the simulator's store, and what is in that store."""

from uuid import UUID

from tests.waiting import until_async

from bmq.metadata.codec import LOG_PREFIX, decode_records
from bmq.metadata.image import Image
from bmq.metadata.journal import MetadataJournal
from bmq.metadata.records import AnyRecord
from bmq.roles.controller import Registration
from bmq.storage.flatlog import decode_entry
from bmq.storage.stream import StreamWriter
from bmq.values import NodeId, StreamId
from bmq_controller.main import ControllerRole, start_controller
from bmq_controller.settings import ControllerSettings
from bmq_sim.clock import SimClock, SimRng
from bmq_sim.store import NodeStore, SimStore

NODE = NodeId(1)


async def start(
    store: SimStore, *, seed: int = 1, settings: ControllerSettings | None = None, node_id: NodeId = NODE
) -> ControllerRole:
    return await start_controller(
        store.for_node(f"n{seed}"), node_id=node_id, clock=SimClock(), rng=SimRng(seed), settings=settings
    )


def registration(node_id: int = 1, boot: int = 1, roles: tuple[str, ...] = ("broker", "proxy")) -> Registration:
    return Registration(node_id=NodeId(node_id), boot=UUID(int=boot), roles=roles, host="h", port=9092)


def entries(store: SimStore) -> list[list[AnyRecord]]:
    """The records of every entry in the store."""
    return [
        decode_records(decode_entry(store.objects[key].data, what=key).payload, what=key)
        for key in store.keys(LOG_PREFIX)
    ]


async def loaded(store: SimStore) -> Image:
    """What a reader of the store sees."""
    return (await MetadataJournal(store.for_node("reader"), rng=SimRng(99)).load()).image


async def write_wal(store: NodeStore, stream: StreamId, count: int, *, cluster_id: str) -> None:
    """A broker's `count` WAL objects."""
    durable: list[int] = []
    writer = StreamWriter(
        store, stream, cluster_id=cluster_id, rng=SimRng(5), on_durable=durable.append, on_fenced=lambda error: None
    )
    for _ in range(count):
        writer.submit([])
    await until_async(lambda: len(durable) >= count, "all to be durable", every_s=0.01)
    await writer.close()
