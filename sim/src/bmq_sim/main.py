"""`python -m bmq_sim`: runs seeds of a scenario, in parallel, and says for each that failed how to see it again."""

import argparse
import concurrent.futures
import contextlib
import json
import os
import sys
from collections.abc import Generator, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Final

from bmq_sim.cluster.faults import Kind
from bmq_sim.cluster.steps import Step
from bmq_sim.lines import Lines, Statement, Watch, count, merged, unrun
from bmq_sim.planted import PLANTED, plant
from bmq_sim.reasons import SAMPLE, all_names, name_of, of_nothing, reasons, stale, without_reason
from bmq_sim.scenarios import SCENARIOS
from bmq_sim.store import ListingKind
from bmq_sim.work import Work, added, faults_table, summary, table
from bmq_sim.world import Outcome, simulate

CHUNK = 20
SHOWN_MAX = 5
ROUNDS_MAX = 3
"""So many samples, each of the next seeds, until all that has no reason ran, and none where it all did in the runs that
a file tells of. A change of the code gives every seed other chances."""
TOLD_MAX: Final = 50
"""Statements that are named while samples go on."""
FIRST_SEED: Final = 50
"""The first sample begins with it: those below are what `make test` runs."""
WATCHES: Final[list[Watch]] = []
"""What `--unrun` and `--ran` begin before the services are imported: processes that run seeds are forked with it."""
RARER: Mapping[str, int] = {
    "cluster": 50,
    "cluster-calm": 25,
    "cluster-copy": 100,
    "cluster-island": 250,
    "cluster-lagging": 100,
    "cluster-lagging-brokers": 100,
    "cluster-late-handover": 250,
    "cluster-late-seal": 250,
    "cluster-late-versions": 100,
    "cluster-leader-replaced": 250,
    "cluster-leader-sleeps": 250,
    "cluster-moves": 250,
    "cluster-seals": 250,
    "cluster-several": 100,
    "cluster-topics": 50,
    "sleeper": 10,
}
"""Where all scenarios are run, these get one of so many seeds: a cluster, or an hour, takes seconds where one node
takes a tenth of a second."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0 if every seed held, 1 if one did not, 2 for arguments that cannot be used."""
    options = _parser().parse_args(arguments)
    assert bool(WATCHES) == (options.unrun or options.ran is not None)
    names = [options.scenario] if options.scenario else sorted(SCENARIOS)
    if options.seed is not None:
        return _show(names[0] if options.scenario else "engine", options)
    failed, works, ran = 0, {name: Work() for name in names}, Lines()
    with contextlib.ExitStack() as stack:
        pool = (
            stack.enter_context(concurrent.futures.ProcessPoolExecutor(max_workers=options.jobs))
            if options.jobs > 1
            else None
        )
        for number in range(ROUNDS_MAX if options.unrun and options.seeds is None else 1):
            if number or (options.unrun and options.seeds is None and options.ran is not None and options.ran.exists()):
                left = without_reason(_left(ran, options.ran), reasons())
                if not left:
                    break
                print(f"{len(left)} statements without a reason did not run yet: the next seeds", flush=True)
                for statement in left[:TOLD_MAX]:
                    print(f"  {statement}", flush=True)
            seeds = {name: _seeds_of(name, options, number) for name in names}
            failed += _run_all(seeds, options, pool, works, ran)
    work = Work()
    for one in works.values():
        work.add(one)
    if options.faults:
        print(faults_table(works), flush=True)
    if options.counts is not None:
        work = added(work, options.counts)
    unexplained = _tell_unrun(ran, options.ran) if options.unrun else 0
    if options.ran is not None and not options.unrun:
        _keep(_left(ran, None), options.ran)
    if work.pairs:
        print(table(work, list(Kind), list(Step)), flush=True)
    print(summary(work), flush=True)
    return 1 if failed or unexplained else 0


def run_seeds(
    name: str,
    seeds: Iterable[int],
    *,
    planted: str | None = None,
    twice: bool = False,
    listing: ListingKind | None = None,
) -> Generator[Outcome, None, None]:
    """Runs the seeds one after the other in this process; with `twice` a seed whose digest is not the same again has
    failed.
    """
    with plant(planted):
        for seed in seeds:
            outcome = simulate(SCENARIOS[name], seed, listing=listing)
            if twice and simulate(SCENARIOS[name], seed, listing=listing).digest != outcome.digest:
                yield Outcome(
                    seed=seed,
                    digest=outcome.digest,
                    error="the seed does not replay exactly",
                    steps=outcome.steps,
                    virtual_s=0.0,
                )
            else:
                yield outcome


def replay_command(name: str, seed: int, *, planted: str | None = None) -> str:
    """What to type to see a seed again."""
    return f"python -m bmq_sim --scenario {name} --seed {seed} --trace" + (f" --planted {planted}" if planted else "")


def _run_all(
    seeds: Mapping[str, range],
    options: argparse.Namespace,
    pool: concurrent.futures.Executor | None,
    works: Mapping[str, Work],
    ran: Lines,
) -> int:
    """All of them begin at once, so that no process waits for the end of a scenario. Returns how many failed."""
    begun = {}
    for name, some in seeds.items():
        size = 1 if name in RARER else max(1, min(CHUNK, len(some) // (2 * options.jobs)))
        chunks = [some[start : start + size] for start in range(0, len(some), size)]
        begun[name] = (pool.map if pool else map)(partial(_chunk, name, options), chunks)
    return sum(_run(name, chunks_run, works[name], ran, planted=options.planted) for name, chunks_run in begun.items())


def _run(
    name: str, chunks: Iterable[tuple[float, list[Outcome], Lines]], work: Work, ran: Lines, *, planted: str | None
) -> int:
    failed: list[Outcome] = []
    count = steps = 0
    virtual_s = took_s = 0.0
    for chunk_s, outcomes, lines in chunks:
        took_s += chunk_s
        merged(ran, lines)
        for outcome in outcomes:
            count += 1
            steps += outcome.steps
            virtual_s += outcome.virtual_s
            work.add(outcome.work)
            if outcome.error is not None:
                failed.append(outcome)
                if len(failed) <= SHOWN_MAX:
                    print(
                        f"seed {outcome.seed} of {name} failed: {outcome.error}\n  "
                        f"{replay_command(name, outcome.seed, planted=planted)}",
                        flush=True,
                    )
    told = f"{name}: {count} seeds, {len(failed)} failed; {steps} steps, {virtual_s / 3600:.1f} simulated hours"
    print(f"{told} in {took_s:.1f} s of its processes", flush=True)
    return len(failed)


def _chunk(name: str, options: argparse.Namespace, seeds: range) -> tuple[float, list[Outcome], Lines]:
    """How many seconds it took, what came of it, and which lines ran in this process so far, where that is watched."""
    began_s = monotonic()
    outcomes = list(run_seeds(name, seeds, planted=options.planted, twice=options.twice, listing=options.listing))
    took_s, lines = monotonic() - began_s, Lines()
    for watch in WATCHES:
        merged(lines, watch.ran())
    return took_s, outcomes, lines


def _seeds_of(name: str, options: argparse.Namespace, number: int) -> range:
    """The seeds of a scenario in a round: where a sample is to say what runs, each round has the next ones."""
    if options.unrun and options.seeds is None:
        first = FIRST_SEED + number * SAMPLE[name]
        return range(first, first + SAMPLE[name])
    seeds = options.seeds or range(100)
    return seeds if options.scenario else seeds[:: RARER.get(name, 1)]


def _left(ran: Lines, file: Path | None) -> list[Statement]:
    """What never ran, neither now nor, by its name, in runs that are in the file."""
    seen = set(json.loads(file.read_text())) if file is not None and file.exists() else set()
    return [statement for statement in unrun(ran) if name_of(statement) not in seen]


def _tell_unrun(ran: Lines, file: Path | None) -> int:
    """What never ran and has no reason, and reasons that are stale. Returns how many of both there are."""
    left, known = _left(ran, file), reasons()
    if file is not None:
        _keep(left, file)
    wrong = [
        *(f"{statement}: it never ran, and has no reason" for statement in without_reason(left, known)),
        *stale(left, known),
        *of_nothing(known),
    ]
    for line in wrong:
        print(line)
    print(
        f"{len(left)} of {count()} statements of the services' functions never ran; {len(wrong)} without a reason, "
        "or reasons without a statement"
    )
    return len(wrong)


def _keep(left: Iterable[Statement], file: Path) -> None:
    """Writes which statements ran, by their names: all but these."""
    file.write_text(json.dumps(sorted(all_names() - {name_of(statement) for statement in left}), indent=0))


def _show(name: str, options: argparse.Namespace) -> int:
    trace = (lambda line: print(line, flush=True)) if options.trace else None
    with plant(options.planted):
        outcome = simulate(SCENARIOS[name], options.seed, trace=trace, listing=options.listing)
    print(
        f"seed {options.seed} of {name}: {outcome.steps} steps, {outcome.virtual_s:.3f} simulated seconds, digest "
        f"{outcome.digest}"
    )
    if outcome.error is None:
        return 0
    print(f"failed: {outcome.error}\n  {replay_command(name, options.seed, planted=options.planted)}")
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bmq_sim", description=__doc__, allow_abbrev=False)
    parser.add_argument("--scenario", choices=sorted(SCENARIOS), help="one scenario instead of all")
    parser.add_argument("--seeds", type=_seeds, metavar="FIRST-LAST", help="which seeds, both inclusive (default 0-99)")
    parser.add_argument("--seed", type=int, help="one seed alone")
    parser.add_argument("--trace", action="store_true", help="with --seed: print what happened, with virtual times")
    parser.add_argument("--twice", action="store_true", help="run each seed twice and compare the digests")
    parser.add_argument("--planted", choices=sorted(PLANTED), help="with a bug planted: some seed should fail")
    parser.add_argument(
        "--listing",
        choices=list(ListingKind),
        type=ListingKind,
        help="how the store lists (default: as the scenario or its seed wants)",
    )
    parser.add_argument(
        "--counts", type=Path, metavar="FILE", help="add what was done to the counts in FILE, and print the sum"
    )
    parser.add_argument("--faults", action="store_true", help="print what went wrong in each scenario, as a table")
    parser.add_argument(
        "--unrun",
        action="store_true",
        help="print which statements of the services no seed ran that have no reason in unrun.toml (default: up to "
        "three samples of seeds)",
    )
    parser.add_argument(
        "--ran",
        type=Path,
        metavar="FILE",
        help="write which statements ran to FILE; with --unrun: add them to those in FILE, and judge the sum",
    )
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one for each processor)"
    )
    return parser


def _seeds(text: str) -> range:
    first, _, last = text.partition("-")
    try:
        return range(int(first), int(last or first) + 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not FIRST-LAST") from None


def start() -> None:
    """Runs `main` with one hash seed for all: the order of a set of strings is part of what a seed repeats."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(
            sys.executable, [sys.executable, "-m", "bmq_sim", *sys.argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"}
        )
    sys.exit(main())
