"""The applications of spark-apps/examples as their YAML says them, but for what a test has to change; what they read,
and what they made of it.

`python e2e_examples.py customers FILE`, by the interpreter of the Spark jobs, writes the dimension that orders are
joined with; `python e2e_examples.py rows FILE…` prints the rows of Parquet files as JSON.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

EXAMPLES: Final = Path(__file__).parents[2] / "spark-apps" / "examples"
BUCKET: Final = "lake"
MINUTE_MS: Final = 60_000
ORDERS: Final = (
    '{"order_id": 1, "customer_id": 7, "amount": 12.50}',
    '{"order_id": 2, "customer_id": 8, "amount": 1}',
    "no order",
)
ENRICHED: Final = [[1, "Ann", "CH", 12.5], [2, None, None, 1.0]]
CLICKS: Final = (("ann", 0), ("bob", 1), ("ann", 20), ("ann", 90), ("eve", 300))
"""Users, and the minute at which they came by."""
SESSIONS: Final = [["ann", 1], ["ann", 2], ["bob", 1]]
"""Users and records of the sessions that are over: the watermark has not passed eve's."""


def application(name: str, image: str, *, topics: dict[str, str], conf: dict[str, str]) -> dict[str, Any]:
    """An example's manifest that ends: with `--once`, this image and these settings, topics of other names; what has a
    schedule begins at once.
    """
    import yaml  # type: ignore[import-untyped]

    manifest: dict[str, Any] = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
    spec = manifest["spec"]
    if manifest["kind"] == "ScheduledSparkApplication":
        spec["schedule"], spec = "@every 5s", spec["template"]
    spec["image"], spec["restartPolicy"], spec["sparkConf"] = (
        image,
        {"type": "Never"},
        {**spec.get("sparkConf", {}), **conf},
    )
    arguments = [one for one in spec["arguments"] if one != "--once"]
    spec["arguments"] = [topics.get(one, one) for one in arguments] + ["--once"]
    return manifest


def code() -> dict[str, Any]:
    """The ConfigMap that the examples take their code from."""
    data = {file.name: file.read_text() for file in EXAMPLES.glob("*.py")}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "bmq-spark-examples"}, "data": data}


def click(servers: str, topic: str, *, first_ms: int) -> None:
    """Writes CLICKS, the first one at `first_ms`."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers})
    for user, minute in CLICKS:
        producer.produce(topic, json.dumps({"user": user}).encode(), timestamp=first_ms + minute * MINUTE_MS)
    assert producer.flush(60) == 0


def asked(python: Path, *arguments: object) -> list[str]:
    """What this file prints by that interpreter."""
    done = subprocess.run(
        [python, __file__, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=120
    )
    assert not done.returncode, done.stderr
    return done.stdout.splitlines()


def rows(python: Path, files: Sequence[Path]) -> list[dict[str, Any]]:
    """Of Parquet files."""
    return [json.loads(line) for line in asked(python, "rows", *files)]


def main(action: str, files: Sequence[str]) -> None:
    import duckdb

    if action == "customers":
        duckdb.sql(f"COPY (SELECT 7::BIGINT AS customer_id, 'Ann' AS name, 'CH' AS country) TO '{files[0]}'")
        return
    for (row,) in duckdb.sql(
        "SELECT to_json(found)::VARCHAR FROM read_parquet($1) AS found", params=[list(files)]
    ).fetchall():
        print(row)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
