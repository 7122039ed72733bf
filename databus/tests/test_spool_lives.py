"""A spool through many lives: whatever is accepted, sent, killed and torn, each process reads what is left, in its
order.
"""

import asyncio
import os
from pathlib import Path
from random import Random

import pytest
from test_channel_spool import files, killed, message, opened, settled

from bmq_databus.spool import channel_spool, reading
from bmq_databus.spool.channel_spool import ChannelSpool
from bmq_databus.spool.frames import SENT


class Life:
    """What a spool must have: the names that were accepted and not sent, in order."""

    def __init__(self, folder: Path, rng: Random) -> None:
        self.folder = folder
        self.rng = rng
        self.left: list[str] = []
        self.count = 0

    async def process(self) -> None:
        """One process from its start to its death."""
        rng = self.rng
        spool = await opened(
            self.folder, segment_bytes=rng.choice((1, 2_000, 50_000)), bytes_max=1 << 30, when_full="block"
        )
        assert spool.waiting == len(self.left)
        unread, under_way = list(self.left), {}
        for _ in range(rng.randrange(30)):
            match rng.randrange(4):
                case 0 | 1:
                    names = [f"m{self.count + n}" for n in range(rng.randrange(1, 6))]
                    self.count += len(names)
                    await spool.accept([message(name, rng.choice((0, 500, 3_000))) for name in names], patience_s=5)
                    self.left += names
                    unread += names
                case 2 if unread:
                    found = await asyncio.wait_for(spool.read(), 10)
                    read = [(one.message.key or b"").decode() for one in found]
                    assert read == unread[: len(read)]
                    del unread[: len(read)]
                    under_way |= {one.number: name for one, name in zip(found, read, strict=True)}
                case 3 if under_way:
                    sent = rng.sample(sorted(under_way), rng.randrange(1, len(under_way) + 1))
                    spool.settle(sent, SENT)
                    gone = {under_way.pop(number) for number in sent}
                    self.left = [name for name in self.left if name not in gone]
        await self._death(spool)

    async def _death(self, spool: ChannelSpool) -> None:
        if self.rng.random() < 0.3:
            await spool.close()
            return
        await killed(spool)
        await settled(spool)
        for path in files(self.folder, ".spool")[-1:]:
            if self.rng.random() < 0.5:  # what it was writing when it died
                with path.open("ab") as torn:
                    torn.write(self.rng.choice((b"b", b"bmqf", os.urandom(300), bytes(5_000))))
        for path in files(self.folder, ".steps")[-1:]:
            if self.rng.random() < 0.2:
                with path.open("ab") as torn:
                    torn.write(os.urandom(9))


@pytest.mark.parametrize("seed", range(25))
def test_each_process_reads_what_is_left_in_the_order_in_which_it_was_accepted(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "READ_BYTES", Random(seed).choice((1, 4_000, 1 << 20)))
    monkeypatch.setattr(channel_spool, "GROUP_BYTES", Random(seed).choice((1, 8 << 20)))

    async def main() -> None:
        life = Life(tmp_path / "clicks", Random(seed))
        for _ in range(8):
            await life.process()

    asyncio.run(main())
