"""Changes of a Cluster that are rolled out, as transcripts: `upgrade_transcripts/*.txt` hold commands (`> ...`) and
what came of them, in order, each line with the seconds since the Cluster was made.

Run with BMQ_REWRITE=1 to write the files anew; a person reviews the diff.

    > cluster controllers=N brokers=N proxies=N partitions=N    it is made, and ready, before anything is told
    > change [BMQ_X_NAME=VALUE...] [image=TAG] [controllers=N] [brokers=N] [proxies=N]      somebody writes the spec
    > not-allowed              somebody writes an image that the chart does not allow; > allowed takes that back
    > pauses                   somebody writes paused: true; > goes-on takes that back
    > deletes                  somebody deletes it with its records, which nobody confirms
    > secret VALUE             somebody writes the secret between nodes
    > breaks [BMQ_X_NAME=VALUE...] [image=TAG] [role=ROLE]      nodes with these settings end
    > not-to-be-had image=TAG  Kubernetes cannot pull it
    > ends POD                 it is lost, and made anew with the newest settings
    > no-room POD              it is lost, and no machine has room for another one, until there is > room POD
    > cordon NODE              somebody else does
    > new-leader               the leading controller is another one, which knows of no drain
    > new-operator             it knows nothing but what the API server has
    > looks-until WORDS        the operator looks every two seconds, until something is said that has these words
    > looks-on                 until all is as the spec says, or nothing has happened for half an hour

`Upgrading: ...`, `keys: ...`, `brokers: ...` is what the Cluster's conditions Progressing, KeysAsWritten and
BrokersInUse say, where that changes.
"""

import asyncio
from pathlib import Path

import pytest
from rolling_world import LOOK_S, Broken, Rolling
from tests.transcripts import holds

from bmq_operator.clusters.names import NODE_IDS_FROM

TRANSCRIPTS = sorted((Path(__file__).parent / "upgrade_transcripts").glob("*.txt"))
NOTHING_S = 1800
QUIET_S, SELDOM_S = 30, 60
"""Once nothing has happened for so long, it looks as seldom as this: what is waited for then takes minutes."""
LOOKS_MAX = 1000
COUNTS = ("controllers", "brokers", "proxies")


class Script:
    """A Cluster, and what was said since the last command."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.found: Rolling | None = None
        self.silent = False

    @property
    def world(self) -> Rolling:
        assert self.found is not None, "a transcript begins with > cluster"
        return self.found

    def say(self, line: str) -> None:
        if not self.silent:
            self.said.append(f"{self.world.now_s:5} s  {line}")

    async def run(self, line: str) -> list[str]:
        self.said = []
        command, *words = line.split()
        pairs = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        await getattr(self, "do_" + command.replace("-", "_"))(*plain, **pairs)
        return self.said

    async def do_cluster(self, *, controllers: str, brokers: str, proxies: str, partitions: str) -> None:
        counts = {"controllers": int(controllers), "brokers": int(brokers), "proxies": int(proxies)}
        self.silent = True
        self.found = Rolling(self.say, counts=counts)
        await self._until_done()
        self.found.nodes.are_made(int(partitions))
        self.silent = False

    async def do_change(self, *, image: str = "", **written: str) -> None:
        counts = {role: count for role, count in written.items() if role in COUNTS}
        variables = {name: value for name, value in written.items() if name not in COUNTS}
        if variables:
            self.world.change(settings={"env": {name: value for name, value in variables.items() if value}})
        if image:
            self.world.change(image={"repository": "bmq", "tag": image})
        self.world.change(**{role: {"replicas": int(count)} for role, count in counts.items()})

    async def do_not_allowed(self) -> None:
        self.world.obstructed(True)

    async def do_allowed(self) -> None:
        self.world.obstructed(False)

    async def do_pauses(self) -> None:
        self.world.change(paused=True)

    async def do_goes_on(self) -> None:
        self.world.change(paused=False)

    async def do_deletes(self) -> None:
        self.world.deleted_unconfirmed()

    async def do_secret(self, value: str) -> None:
        self.world.secret_is_written(value)

    async def do_breaks(self, *, image: str = "", role: str = "", **variables: str) -> None:
        self.world.broken.append(Broken(variables=variables, role=role, image=f"bmq:{image}" if image else ""))

    async def do_not_to_be_had(self, *, image: str) -> None:
        self.world.broken.append(Broken(variables={}, role="", image=f"bmq:{image}", held_back=True))

    async def do_ends(self, pod: str) -> None:
        self.world.kube.drop("Pod", "shop", pod)

    async def do_no_room(self, pod: str) -> None:
        self.world.without_room.add(pod)
        self.world.kube.drop("Pod", "shop", pod)

    async def do_room(self, pod: str) -> None:
        self.world.without_room.remove(pod)

    async def do_cordon(self, node: str) -> None:
        self.world.nodes.cordoned.add(int(node))

    async def do_new_leader(self) -> None:
        nodes, alive = self.world.nodes, self.world.alive()
        others = [one for one in alive if one < NODE_IDS_FROM["broker"] and one != nodes.leader]
        nodes.leads(set(others))

    async def do_new_operator(self) -> None:
        self.world.operator_starts()

    async def do_looks_until(self, *words: str) -> None:
        for _ in range(LOOKS_MAX):
            await self.world.looks()
            if any(" ".join(words) in line for line in self.said):
                return
        raise AssertionError(f"nobody says {words}")

    async def do_looks_on(self) -> None:
        await self._until_done()
        lives = ", ".join(f"{node_id} has {count}" for node_id, count in sorted(self.world.nodes.partitions.items()))
        self.say(f"partitions: {lives}")

    async def _until_done(self) -> None:
        said_s, lines = self.world.now_s, len(self.said)
        for _ in range(LOOKS_MAX):
            quiet = self.world.now_s - said_s > QUIET_S
            if await self.world.looks(after_s=SELDOM_S if quiet else LOOK_S):
                return
            if len(self.said) > lines:
                said_s, lines = self.world.now_s, len(self.said)
            if self.world.now_s - said_s > NOTHING_S:
                return
        raise AssertionError("it does not end")


async def replayed(text: str) -> str:
    """The transcript with what really happens."""
    script = Script()
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("> "):
            lines += [line, *(f"    {one}" for one in await script.run(line[2:]))]
        elif not line.startswith("    "):
            lines.append(line)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_changes_are_rolled_out_as_their_transcript_says(path: Path) -> None:
    holds(path, asyncio.run(replayed(path.read_text())))
