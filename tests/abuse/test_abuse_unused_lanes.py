"""Lanes in which nobody writes cost next to nothing, also where somebody looks at what is there."""

import json
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest
from abuse_process import BmqProcess, bmq_process
from tests.bare_client import BareClient
from tests.waiting import let_pass

pytestmark = [pytest.mark.measures, pytest.mark.memory, pytest.mark.slow]

MIB: Final = 1 << 20
LANES: Final = 1_000
TOPICS: Final = {f"t{number}": 4 for number in range(100)}
GROWTH_BYTES_MAX: Final = 50 * MIB
ASKED_GROWTH_BYTES_MAX: Final = 150 * MIB
"""Once a client of each lane has asked for all topics: what serves a lane is made then."""
IDLE_S: Final = 10.0
USED_MAX: Final = 0.02
"""More of a processor than without lanes."""


@pytest.fixture
def process(tmp_path: Path) -> Iterator[BmqProcess]:
    with bmq_process(tmp_path, topics=TOPICS) as running:
        yield running


def make_lane(process: BmqProcess, name: str) -> None:
    request = urllib.request.Request(
        f"{process.started.admin}/v1/lanes",
        method="POST",
        data=json.dumps({"name": name}).encode(),
        headers={"content-type": "application/json"},
    )
    with closing(urllib.request.urlopen(request)) as answer:
        assert answer.status == 201


def used_while_idle(process: BmqProcess) -> float:
    """As a share of one processor."""
    before_s = process.used_s()
    let_pass(IDLE_S, "what it uses while nobody asks anything")
    return (process.used_s() - before_s) / IDLE_S


def objects(folder: Path) -> set[Path]:
    """But for those of the metadata log."""
    data = folder / "data"
    assert (data / "meta").is_dir()
    return {path for path in data.rglob("*") if path.is_file() and (data / "meta") not in path.parents}


def test_a_thousand_unused_lanes_over_a_hundred_topics_take_no_memory_no_objects_and_no_processor(
    process: BmqProcess, tmp_path: Path
) -> None:
    process.until_quiet()
    before_bytes, used, there = process.resident_bytes(), used_while_idle(process), objects(tmp_path)
    for number in range(LANES):
        make_lane(process, f"l{number}")
    process.until_quiet()
    assert process.resident_bytes() - before_bytes < GROWTH_BYTES_MAX
    for number in range(LANES):
        with BareClient(process.kafka) as client:
            client.client_id = f"lane=l{number}"
            assert not client.ask(3, 9, {"topics": None, "allow_auto_topic_creation": False}).topics
            asked = [{"name": name} for name in TOPICS]
            found = client.ask(3, 9, {"topics": asked, "allow_auto_topic_creation": False})
            assert {topic.name: len(topic.partitions) for topic in found.topics} == TOPICS
    process.until_quiet()
    assert process.resident_bytes() - before_bytes < ASKED_GROWTH_BYTES_MAX
    assert objects(tmp_path) == there
    assert used_while_idle(process) < used + USED_MAX
