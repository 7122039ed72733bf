"""`bmq lanes promote`: what a lane's topics are becomes what they are where it falls back to."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final

import typer

from bmq.config.topic_config import FIRST_OFFSET, LANE_HEADER, POOL
from bmq.naming.lanes import name_in_lane, overlay_name
from bmq_admin import pages
from bmq_cli.cluster.client import ApiFailed
from bmq_cli.cluster.session import ClusterSession
from bmq_cli.terminal.exit_codes import CommandFailed, ExitCode
from bmq_cli.terminal.output import Cell, Column, counted
from bmq_resources.differences import Difference, as_changes, config_differences

_OF_A_LANE: Final = frozenset({POOL, FIRST_OFFSET})
"""Where a lane's topic lives and begins is the lane's to say."""
_LOOK_AGAIN_S: Final = 1.0
_COLUMNS: Final = (
    Column(title="TOPIC"),
    Column(title="ACTION"),
    Column(title="FIELD"),
    Column(title="THERE"),
    Column(title="IN THE LANE"),
)


@dataclass(kw_only=True)
class Promoted:
    """What became of one topic where the lane falls back to."""

    name: str
    action: str
    changes: list[Difference] = field(default_factory=list)
    left: list[Difference] = field(default_factory=list)
    """What differs and stays so."""

    def document(self) -> dict[str, Any]:
        """For programs."""
        parts = {"changes": self.changes, "left": self.left}
        told = {name: [one.document() for one in part] for name, part in parts.items()}
        return {"name": self.name, "action": self.action, **told}


class Promotion:
    """One run over a lane's topics."""

    def __init__(self, session: ClusterSession, lane: str, parent: str, *, with_config: bool, dry_run: bool) -> None:
        self._client = session.client
        self._lane = lane
        self._parent = parent
        self._with_config = with_config
        self._dry_run = dry_run
        self._beneath = list(self._lanes_beneath(parent))

    def topic(self, name: str) -> Promoted:
        """Has the topic beneath as the lane's is: there, with as many partitions, and if that is asked with its
        configuration.
        """
        own = self._client.ask(pages.topic(overlay_name(self._lane, name)))
        partitions, configs = own["partitions"], _without_lanes(own["configs"])
        stored, there = self._found(name)
        if there is None:
            self._create(name, partitions, configs)
            made = [Difference(field="partitions", before=None, after=partitions)]
            return Promoted(name=name, action="created", changes=[*made, *_config(config_differences(configs, {}))])
        more = []
        if there["partitions"] < partitions:
            more.append(Difference(field="partitions", before=there["partitions"], after=partitions))
        is_parents = stored == overlay_name(self._parent, name)
        differ = config_differences(configs, _without_lanes(there["configs"]))
        kept = [one for one in differ if is_parents and one.field == LANE_HEADER]  # as the topic was made with it
        others = [one for one in differ if one not in kept]
        changes = [*more, *_config(others)] if self._with_config else more
        left = _config(kept if self._with_config else differ)
        if not changes:
            return Promoted(name=name, action="unchanged", left=left)
        if not is_parents:
            # It lies deeper: what changes is a topic of the parent's own, as a first write would make it.
            self._create(name, max(partitions, there["partitions"]), configs if self._with_config else there["configs"])
        else:
            version = there["version"]
            if more:
                grown = pages.grow_topic(stored, total=partitions, version=version, dry_run=self._dry_run)
                version = self._client.ask(grown)["version"]
            if self._with_config and others:
                asked = pages.change_topic(stored, as_changes(others), version=version, dry_run=self._dry_run)
                self._client.ask(asked)
        return Promoted(name=name, action="changed", changes=changes, left=left)

    def _found(self, name: str) -> tuple[str, Any]:
        """The topic beneath that is nearest, by the name that the cluster has for it; None: there is none."""
        for lane in (*self._beneath, ""):
            stored = overlay_name(lane, name)
            try:
                return stored, self._client.ask(pages.topic(stored))
            except ApiFailed as failure:
                if failure.problem != "UnknownTopic":
                    raise
        return "", None

    def _create(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        made = pages.create_topic(
            name, partitions=partitions, configs=_without_lanes(configs), lane=self._parent, dry_run=self._dry_run
        )
        self._client.ask(made)

    def _lanes_beneath(self, lane: str) -> Iterator[str]:
        seen: set[str] = set()
        while lane and lane not in seen:
            yield lane
            seen.add(lane)
            lane = self._client.ask(pages.lane(lane)).get("parent", "")


def promote(
    session: ClusterSession,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The lane.")],
    *,
    config: Annotated[
        bool,
        typer.Option("--config", help="Change the configuration of topics that are there, too, to what the lane has."),
    ] = False,
    wait: Annotated[
        int,
        typer.Option(
            "--wait",
            min=0,
            metavar="SECONDS",
            help="Then wait so long for what is in the lane to go on: until nobody in it consumes and nothing waits.",
        ),
    ] = 0,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show what would change, after the cluster has checked it, and change nothing."),
    ] = False,
) -> None:
    """Make topics of the base, or of the lane around it, what they are in a lane: create those that are missing, add
    partitions. Records stay where they are, and go on when the lane's consumers end. A second time nothing changes.
    """
    lane = session.client.ask(pages.lane(name))
    parent = lane.get("parent", "")
    target = f"lane {parent}" if parent else "the base"
    if wait and lane["fallback"] == "none":
        raise CommandFailed(
            f"lane {name}", "it has no fallback: nothing of it goes on", "leave --wait out", code=ExitCode.USAGE
        )
    promotion = Promotion(session, name, parent, with_config=config, dry_run=dry_run)
    topics = [name_in_lane(one["name"]) for one in session.client.items("topics", lane=name)]
    found = [promotion.topic(topic) for topic in topics]
    session.output.document([one.document() for one in found])
    session.output.table(_COLUMNS, [row for one in found for row in _rows(one, dry_run=dry_run)])
    counts = {action: sum(1 for one in found if one.action == action) for action in ("created", "changed")}
    said = ", ".join(f"{count} {_action(action, dry_run=dry_run)}" for action, count in counts.items() if count)
    session.output.text(f"{counted(len(found), 'topic')} of lane {name}, in {target}: {said or 'all as they are'}")
    if any(one.left for one in found):
        session.output.note("--config gives topics that differ the configuration that they have in the lane")
    if wait and not dry_run:
        _wait(session, name, topics, wait)
        session.output.text(
            f"nothing waits in lane {name}: once nobody writes there, it can go (bmq lanes delete {name})"
        )


def _wait(session: ClusterSession, lane: str, topics: list[str], wait_s: int) -> None:
    """Raises CommandFailed where something still waits then."""
    until_s = time.monotonic() + wait_s
    with session.output.waiting("what is in the lane goes on"):
        while left := [(topic, why) for topic in topics if (why := _why_not_over(session, lane, topic))]:
            if time.monotonic() >= until_s:
                topic, why = left[0]
                others = f", and {len(left) - 1} more topics" if len(left) > 1 else ""
                raise CommandFailed(
                    f"lane {lane}",
                    f"after {wait_s} s not all of it has gone on: topic {topic}: {why}{others}",
                    "end the lane's consumers, and run it again",
                    code=ExitCode.FAILED,
                )
            time.sleep(_LOOK_AGAIN_S)


def _why_not_over(session: ClusterSession, lane: str, topic: str) -> str:
    """ "": all that there was has gone on."""
    query: dict[str, object] = {}
    while True:
        route = session.client.get("lanes", lane, "routes", topic, **query)
        waiting, turns = route["waiting"], route["turns"]
        if turns["lane"] - turns["stay"] or turns["closing"]:
            return str(route["why"])
        if turns["stay"]:
            return f"{counted(turns['stay'], 'partition')} that there are in the lane alone go on to nothing"
        if waiting["records"] or waiting["unknown"]:
            return f"{waiting['records']} messages wait, and of {waiting['unknown']} partitions it is not known"
        if not route["continue"]:
            return ""
        query = {"continue": route["continue"]}


def _config(found: Sequence[Difference]) -> list[Difference]:
    return [replace(one, field=f"config.{one.field}") for one in found]


def _without_lanes(configs: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in configs.items() if name not in _OF_A_LANE}


def _action(action: str, *, dry_run: bool) -> str:
    return f"would be {action}" if dry_run and action in ("created", "changed") else action


def _rows(found: Promoted, *, dry_run: bool) -> Iterator[list[Cell]]:
    name, action = found.name, _action(found.action, dry_run=dry_run)
    shown = [(action, one) for one in found.changes] + [("differs", one) for one in found.left]
    for said, one in shown or [(action, Difference(field="", before="", after=""))]:
        before, after = ("default" if value is None else value for value in (one.before, one.after))
        yield [name, said, one.field, before, after]
        name = ""
