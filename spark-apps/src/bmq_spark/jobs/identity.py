"""Which topics a table is of: their ids are kept with it, one object for each name, created once.

A topic that was deleted and made again has another id and begins at offset 0: its records are not the ones that the
table's places speak of.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Final

from bmq.errors import ObjectMissing
from bmq_spark.errors import JobStopped, TableBroken
from bmq_spark.jobs.cluster import Topic
from bmq_spark.locations import Location

NAME_MAX: Final = 228


def check_identity(location: Location, topics: Mapping[str, Topic], *, what: str) -> None:
    """Notes the ids of topics that are new to `location`, and compares the others'. `what` names the table in messages.

    Raises JobStopped where a topic is another than the one that the table has records of.
    """
    for name, topic in topics.items():
        key = f"_bmq/topics/{name if location.folder is None else _file_name(name)}.json"
        content = json.dumps({"topic": name, "id": topic.id}).encode()
        kept = _kept(location, key)
        if kept is None and not location.create(key, content):
            kept = _kept(location, key)
        if kept is not None and kept != topic.id:
            raise another_topic(name, topic, kept=kept, what=what, option="--output")


def _file_name(topic: str) -> str:
    """Names of topics may be nearly as long as a file's, which has some letters more while it is written."""
    return topic if len(topic) <= NAME_MAX else f"{topic[:200]}-{hashlib.sha256(topic.encode()).hexdigest()[:16]}"


def another_topic(name: str, topic: Topic, *, kept: str, what: str, option: str) -> JobStopped:
    """What to raise for a topic whose id is not the one that `what` is of; `option` names another table."""
    return JobStopped(
        f"topic {name}: its id is {topic.id}, but {what} is of one with id {kept}: it was deleted and made again, "
        "is of another cluster, or is a lane's own since the lane has written to what it read of the base: give "
        f"the new topic a table of its own, by another {option}"
    )


def _kept(location: Location, key: str) -> str | None:
    try:
        found = json.loads(location.read(key))
        return str(found["id"])
    except ObjectMissing:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise TableBroken(
            f"{location.hadoop(key)}: not what a job wrote: restore it, or delete it to take the topic's present id"
        ) from error
