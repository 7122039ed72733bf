"""`python -m bmq_spark.table files|describe|check URI`: a table from a shell, without Spark.

Exit codes: 0; 1 the table is broken, or cannot be reached; 2 there is none, or the arguments cannot be used.
"""

import argparse
import sys
from collections.abc import Sequence

from bmq_spark.errors import BmqError, ConfigurationError
from bmq_spark.locations import Location
from bmq_spark.table.checking import check, described
from bmq_spark.table.reading import files


def main(arguments: Sequence[str]) -> int:
    """Runs one command; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bmq_spark.table", description=__doc__.splitlines()[0] if __doc__ else None
    )
    commands = parser.add_subparsers(dest="command", required=True)
    listing = commands.add_parser("files", help="print the files of the newest version, one a line")
    listing.add_argument("--version", type=int, help="of that version")
    commands.add_parser("describe", help="print version, files, rows, offsets, columns")
    checking = commands.add_parser("check", help="compare the newest version with what is stored")
    checking.add_argument("--quick", action="store_true", help="read no data files")
    for command in commands.choices.values():
        command.add_argument(
            "uri", metavar="URI", help="a folder, or s3a://BUCKET/PREFIX: what a job was given as --output"
        )
    found = parser.parse_args(arguments)
    try:
        return _run(found)
    except ConfigurationError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BmqError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 0


def _run(found: argparse.Namespace) -> int:
    if found.command == "files":
        for path in files(found.uri, found.version):
            print(path)
        return 0
    location = Location.parse(found.uri)
    if found.command == "describe":
        for line in described(location):
            print(line)
        return 0
    done = check(location, quick=found.quick)
    for finding in done.findings:
        print(finding)
    verdict = f"{len(done.findings)} findings" if done.findings else "nothing wrong"
    print(
        f"version {done.version}: {done.files} files, {done.rows:,} rows, {done.bytes:,} bytes, "
        f"{done.without_record:,} offsets without a record, {done.unnamed} objects beside it: {verdict}"
    )
    return 1 if done.findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
