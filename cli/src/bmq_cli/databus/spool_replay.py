"""`bmq databus spool replay`: what waits, or was refused, written to the cluster without a sidecar."""

import asyncio
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bmq.runtime.logging import configure_logging
from bmq.runtime.loop import run_service
from bmq.runtime.system import SystemClock
from bmq_cli.databus.failures import told_as_failures
from bmq_cli.kafka.connection import check_addresses
from bmq_cli.terminal.exit_codes import CommandFailed, ExitCode, SeveralFailed
from bmq_cli.terminal.output import Output, counted
from bmq_databus.backlog.channels import chosen
from bmq_databus.backlog.replaying import Replay, Replayed
from bmq_databus.spool.clusters import folder_of


def replay_spool(
    root: Path, output: Output, *, bootstrap_servers: str, channel: str | None, refused: bool, patience_s: float
) -> int:
    """The command; its exit code. Raises CommandFailed, SeveralFailed."""
    configure_logging(environment={"BMQ_LOG_LEVEL": "warning", **os.environ})
    check_addresses(bootstrap_servers)
    done: list[Replayed] = []
    with told_as_failures():
        names = chosen(root, channel)

    async def main(stop: asyncio.Event) -> int:
        replaying = await Replay.opened(root, names, bootstrap_servers=bootstrap_servers, clock=SystemClock())
        try:
            for name in names:
                if not await replaying.run(name, refused=refused, stop=stop, patience_s=patience_s):
                    return ExitCode.INTERRUPTED
            return ExitCode.OK
        finally:
            done.extend(replaying.done)
            await replaying.close()

    with told_as_failures():
        try:
            code = run_service(main)
        finally:
            output.document([_document(one) for one in done])
            for one in done:
                output.text(_text(one))
            if not names:
                output.text(f"no channel has anything in {root}")
    if failures := [failure for one in done for failure in _failures(root, one)]:
        raise SeveralFailed(failures)
    return code


def _document(one: Replayed) -> dict[str, Any]:
    refused = [{"topic": topic, "why": why, "messages": count} for (topic, why), count in sorted(one.refused.items())]
    return {**asdict(one), "refused": refused}


def _text(one: Replayed) -> str:
    again = f" ({one.written_again} of them may be there twice)" if one.written_again else ""
    written = f"{counted(one.written, 'message')} written{again}"
    return f"{one.channel}: {written}, {one.refused.total()} refused, {one.left} left"


def _failures(root: Path, one: Replayed) -> Iterator[CommandFailed]:
    for (topic, why), count in sorted(one.refused.items()):
        yield CommandFailed(
            f"channel {one.channel}",
            f"{counted(count, 'message')} refused for topic {topic}: {why}",
            f"They are in {folder_of(root, one.channel) / 'refused.jsonl'}: `replay --refused` tries them again",
        )
    if one.damaged or one.set_aside:
        lost = f", and {counted(one.damaged, 'message')} of them cannot be read" if one.damaged else ""
        yield CommandFailed(
            f"channel {one.channel}",
            f"{counted(one.set_aside, 'segment')} not what was written{lost}",
            "They are kept as *.damaged: `export --damaged` writes what else is whole in them",
        )
    if one.too_new:
        yield CommandFailed(
            f"channel {one.channel}",
            f"{counted(one.too_new, 'segment')} of a later version left",
            "Replay them with that version",
        )
