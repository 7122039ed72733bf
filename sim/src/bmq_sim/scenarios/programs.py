"""What else goes on beside producers, readers and groups: retention, deletions, changed configurations, topics made
again, lanes, also such that fall back or are named by headers, channels, REST.

A seed has some of it, so that what it has meets the faults often, and a run stays as short as it is.
"""

from collections.abc import Coroutine, Mapping, Sequence
from random import Random
from typing import Any, Final

from bmq_sim.client import SimClient
from bmq_sim.clock import true_now_ms
from bmq_sim.history import Expiry, History, Place
from bmq_sim.process import SimProcess
from bmq_sim.programs.channeling import ChannelAdministrator, ChannelFollower
from bmq_sim.programs.choosing import LANES, Chooser, run_all
from bmq_sim.programs.choosing import client_id as choosing_client_id
from bmq_sim.programs.committed import OffsetWriter
from bmq_sim.programs.configuring import ConfigChanger
from bmq_sim.programs.deleting import RecordDeleter
from bmq_sim.programs.expiring import OffsetExpirer
from bmq_sim.programs.falling.lane import FallingLane
from bmq_sim.programs.falling.lane import client_id as falling_client_id
from bmq_sim.programs.falling.ledger import PARENT
from bmq_sim.programs.growing import TopicGrower
from bmq_sim.programs.laning import LaneUser, client_id
from bmq_sim.programs.looking import Looker
from bmq_sim.programs.operating import Operating
from bmq_sim.programs.remaking import TopicRemaker
from bmq_sim.programs.resting import RestAdministrator
from bmq_sim.rest import Administered, Rest
from bmq_sim.scenarios.workload import Clients

EXPIRING: Final = "expiring"
DAY_MS: Final = 24 * 60 * 60 * 1000
OLD_MS: Final = 3 * DAY_MS
KINDS: Final = ("retention", "deleting", "growing", "remaking", "configuring", "offsets", "static", "lanes", "rest")
MORE_KINDS: Final = ("looking", "operating", "expiring", "defaults")
"""By a chance of their own: what the others do in a seed is the same with and without."""
CHANNELS: Final = "channels"
"""By a chance of its own, too."""
FALLING: Final = "falling"
"""By a chance of its own, too."""
CHOOSING: Final = "choosing"
"""By a chance of its own, too."""
OPERATED: Final = "operated"
CHOICES: Final[Mapping[str, Sequence[str]]] = {
    "max.message.bytes": ("1048588", "2097152", "4194304"),
    "retention.ms": ("604800000", "1209600000", "-1"),
    "retention.bytes": ("-1", "1073741824"),
    "message.timestamp.after.max.ms": ("3600000", "86400000"),
}
DEFAULTS: Final[Mapping[str, Sequence[str]]] = {
    "message.timestamp.before.max.ms": ("9223372036854775807", "2592000000"),
    "segment.bytes": ("1073741824", "536870912"),
}
"""By keys that no program sets for a topic. None of either takes or refuses anything that the other clients write."""


class Programs:
    """What goes on in one run beside its producers, readers and groups."""

    def __init__(
        self,
        clients: Clients,
        deployment: Administered,
        followed: Sequence[Place],
        *,
        rng: Random,
        configs: dict[str, str],
        share: float,
    ) -> None:
        """`followed`: partitions of a topic that stays; `configs` of the topics that are made; `share`: how likely each
        kind is.
        """
        self._clients = clients
        self._deployment = deployment
        self._followed = list(followed)
        self._rng = rng
        self._configs = configs
        self._more = clients.world.rng("more programs")
        self.kinds = [kind for kind in KINDS if rng.random() < share] + [
            kind for kind in MORE_KINDS if self._more.random() < share
        ]
        """What this seed has."""
        if clients.world.rng("channels").random() < share:
            self.kinds.append(CHANNELS)
        if clients.world.rng("falling").random() < share:
            self.kinds.append(FALLING)
        if clients.world.rng("choosing").random() < share:
            self.kinds.append(CHOOSING)
        self._used: list[SimClient] = []
        self._configuring: list[ConfigChanger] = []
        self._offsets: OffsetWriter | None = None
        self._expiring: OffsetExpirer | None = None
        self._channels: tuple[ChannelAdministrator, ChannelFollower] | None = None
        self._falling: FallingLane | None = None
        self._chooser: Chooser | None = None

    async def start(self) -> None:
        """Returns when the topics that need one are there."""
        for kind in self.kinds:
            self._clients.world.work.operations[kind] += 1
            match kind:
                case "retention":
                    await self._start_expiring()
                case "deleting":
                    deleter = RecordDeleter(
                        self._client("deleter"), self._history, self._followed, pause_s=self._pause_s(8)
                    )
                    self._run("deleter", deleter.run())
                case "growing":
                    client = self._client("grower")
                    places = self._clients.places
                    grower = TopicGrower(client, self._history, places, configs=self._configs, pause_s=self._pause_s(8))
                    self._run("grower", grower.run())
                case "remaking":
                    client = self._client("remaker")
                    remaker = TopicRemaker(client, self._history, configs=self._configs, pause_s=self._pause_s(3))
                    self._run("remaker", remaker.run())
                case "configuring":
                    self._change("configurer", CHOICES, pause_s=self._pause_s(4))
                case "defaults":
                    self._change("defaulter", DEFAULTS, pause_s=4.0, by_default=True)
                case "static":
                    for index in range(2):
                        self._clients.member(f"static-{index}", group="statics", instance_id=f"instance-{index}")
                case "rest":
                    rest = self._rest("rest")
                    self._run(
                        "rester",
                        RestAdministrator(self._client("rester"), self._history, rest, pause_s=self._pause_s(4)).run(),
                    )
                case "lanes":
                    client, topic = self._client(client_id("laner")), self._followed[0].topic
                    user = LaneUser(client, self._history, self._rest("lanes"), topic=topic, pause_s=self._pause_s(3))
                    self._run("laner", user.run())
                case "looking":
                    client, rest = self._client("looker"), self._rest("looker's")
                    looker = Looker(
                        client, self._history, rest, self._followed, pause_s=2 * self._more.choice((0.2, 1.0))
                    )
                    self._run("looker", looker.run())
                case "operating":
                    await self._start_operating()
                case "expiring":
                    short, long = self._followed[:2]
                    self._expiring = OffsetExpirer(
                        self._client("expiring"), self._history, short=short, long=long, pause_s=4.0
                    )
                    self._run("expiring", self._expiring.run())
                case "channels":
                    self._start_channels()
                case "falling":
                    await self._start_falling()
                case "choosing":
                    await self._start_choosing()
                case "offsets":
                    self._offsets = OffsetWriter(
                        self._client("keeper"), self._history, self._followed[:2], pause_s=self._pause_s(2)
                    )
                    self._run("keeper", self._offsets.run())

    def stop(self) -> None:
        """Nothing new. What is under way is finished, as clients finish: once all is well."""
        for client in self._used:
            client.stopped = True

    async def look(self) -> None:
        """Keeps what is set and committed, now that all is well."""
        for changer in self._configuring:
            await changer.look()
        if self._offsets is not None:
            await self._offsets.look()
        if self._expiring is not None:
            await self._expiring.look()
        if self._channels is not None:
            administrator, follower = self._channels
            await follower.catch_up(await administrator.look())
        if self._falling is not None:
            await self._falling.check()
            await self._falling.clear_away()
        if self._chooser is not None:
            await self._chooser.check()
            await self._chooser.clear_away()

    @property
    def _history(self) -> History:
        return self._clients.world.history

    def _rest(self, name: str) -> Rest:
        return Rest(self._deployment, self._history, rng=self._clients.world.rng(name))

    def _pause_s(self, most_s: float) -> float:
        return most_s * self._rng.choice((0.2, 1.0))

    def _run(self, name: str, program: Coroutine[Any, Any, None]) -> None:
        self._clients.finishing.append(SimProcess(name, host=name).start(program))

    def _client(self, name: str) -> SimClient:
        client = self._clients.client(name)
        self._used.append(client)
        return client

    def _change(
        self, name: str, choices: Mapping[str, Sequence[str]], *, pause_s: float, by_default: bool = False
    ) -> None:
        topic = self._followed[0].topic
        changer = ConfigChanger(
            self._client(name), self._history, topic, choices, pause_s=pause_s, by_default=by_default
        )
        self._configuring.append(changer)
        self._run(name, changer.run())

    async def _start_falling(self) -> None:
        writer, *readers = (
            self._client(falling_client_id(f"falling-{name}")) for name in ("writer", "reader", "other-reader")
        )
        self._falling = FallingLane(
            writer,
            readers,
            self._client("falling-base"),
            self._history,
            self._rest("falling"),
            between=self._client(falling_client_id("falling-between", PARENT)),
            rng=self._clients.world.rng("falling's ways"),
        )
        await self._falling.begin()
        self._run("falling-writer", self._falling.write())
        self._run("falling-base-writer", self._falling.write_by_header())
        self._run("falling-reader", self._falling.consume())
        self._run("falling-disturber", self._falling.disturb())
        self._run("falling-between", self._falling.consume_between())
        watcher = self._falling.watcher(self._client("falling-watcher"), self._rest("routes"))
        self._run("falling-watcher", watcher.run())

    async def _start_operating(self) -> None:
        client, rest, pause_s = (
            self._client("operator's"),
            self._rest("operator's rest"),
            4 * self._more.choice((0.5, 1.0)),
        )
        await client.create_topic(OPERATED, partitions=2, configs=self._configs)
        operating = Operating(client, self._history, rest, self._followed, topic=OPERATED, pause_s=pause_s)
        self._run("operating", operating.run())

    async def _start_choosing(self) -> None:
        self._chooser = Chooser(
            self._client("chooser"),
            self._client("chooser elsewhere"),
            {lane: self._client(choosing_client_id(f"chooser-{lane}", lane)) for lane in LANES},
            self._history,
            self._rest("choosing"),
            rng=self._clients.world.rng("choosing's ways"),
            configs=self._configs,
        )
        await self._chooser.begin()
        self._run("chooser", run_all(self._chooser))

    def _start_channels(self) -> None:
        rng = self._clients.world.rng("channels' pauses")
        administrator = ChannelAdministrator(
            self._client("channeler"), self._history, self._rest("channels"), pause_s=2 * rng.choice((0.2, 1.0))
        )
        follower = ChannelFollower(self._client("channel-follower"), self._history, self._rest("followed channels"))
        self._channels = administrator, follower
        self._run("channeler", administrator.run())
        self._run("channel-follower", follower.run())

    async def _start_expiring(self) -> None:
        """Two thirds of what is written are so old that time takes them; size takes all but a few batches."""
        rng, clients = self._rng, self._clients
        by_time, kept_bytes = rng.choice(((True, None), (False, 2_000), (True, 2_000), (False, 20_000)))
        configs = {
            **self._configs,
            "retention.ms": str(DAY_MS if by_time else -1),
            "retention.bytes": str(-1 if kept_bytes is None else kept_bytes),
        }
        await clients.client("expirer").create_topic(EXPIRING, partitions=1, configs=configs)
        place = Place(EXPIRING, 0)
        began_ms = true_now_ms()
        self._history.expires[place] = Expiry(
            young_from_ms=began_ms - OLD_MS // 2 if by_time else None, kept_bytes=kept_bytes
        )
        turns = rng.choice((3, 10, 40))
        clients.plain(
            "expiring-producer",
            place,
            batches=100_000,
            pace_s=0.4,
            age_ms=lambda number: OLD_MS if by_time and number // turns % 3 else 0,
        )
        clients.follower("expiring-follower", place)
        clients.places.append(place)
