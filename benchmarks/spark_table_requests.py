"""What a table in a bucket asks of it: requests counted by a front of MinIO, for each batch of a stream, for a large
file, and for a compaction.

`PYTHONPATH=tests/compat:spark-apps/tests .cache/spark/bin/python -m benchmarks.spark_table_requests`
prints the counts by which docs/tables.md says what a table costs.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from time import monotonic, time
from urllib.parse import parse_qs, unquote, urlsplit

from compat_server import ROOT, Bmq, Minio
from parquet_jobs import produce, topic_of
from tests.waiting import until

from bmq.runtime.bucket import ensure_bucket
from bmq.runtime.store_url import parse_store_url

BATCHES = 5
PARTITIONS = 3
LARGE_BYTES = 40 << 20
VALUE_BYTES = 1 << 12
HOUR_MS = 3_600_000
QUIET_S = 4
"""Without a request for so long, with a trigger a second, a batch is over."""
WAIT_S = 600
PARTS = ("checkpoint", "_dead_letters", "_bmq/log", "_bmq/snapshots", "date=")
_HOP = ("connection", "transfer-encoding", "keep-alive")


class Counting:
    """Passes requests on to MinIO, and counts them by (what it is priced as, which part of the table)."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._lock = Lock()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._newest_s = monotonic()
        counting = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                counting._answer(self)

            do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

            def log_message(self, *_: object) -> None:
                """It counts instead."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        Thread(target=self._server.serve_forever, daemon=True).start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def taken(self) -> Counter[tuple[str, str]]:
        """Since it was asked last, when nobody has asked anything for a while."""
        until(lambda: monotonic() - self._newest_s >= QUIET_S, "nobody to ask for anything", 600, every_s=0.2)
        with self._lock:
            found, self._counts = self._counts, Counter()
        return found

    def _answer(self, asked: BaseHTTPRequestHandler) -> None:
        body = asked.rfile.read(int(asked.headers.get("Content-Length") or 0))
        with self._lock:
            self._newest_s = monotonic()
            self._counts[_kind(asked.command, asked.path), _part(asked.path)] += 1
        connection = HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            connection.putrequest(asked.command, asked.path, skip_host=True, skip_accept_encoding=True)
            for name, value in asked.headers.items():
                if name.lower() not in (*_HOP, "expect"):
                    connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        asked.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in (*_HOP, "content-length"):
                asked.send_header(name, value)
        asked.send_header(
            "Content-Length",
            answer.getheader("Content-Length") or "0" if asked.command == "HEAD" else str(len(content)),
        )
        asked.end_headers()
        if asked.command != "HEAD":
            asked.wfile.write(content)


def _kind(method: str, path: str) -> str:
    query = parse_qs(urlsplit(path).query, keep_blank_values=True)
    if method == "GET" and ("list-type" in query or "prefix" in query):
        return "LIST"
    if method == "POST":
        return "DELETE" if "delete" in query else "POST"
    return "PUT of a part" if "partNumber" in query else method


def _part(path: str) -> str:
    found = parse_qs(urlsplit(path).query).get("prefix", [unquote(urlsplit(path).path)])[0]
    return next((part for part in PARTS if part in found), found)


def _said(counts: Counter[tuple[str, str]]) -> str:
    return ", ".join(
        f"{count} {kind} {part}"
        for (kind, part), count in sorted(counts.items(), key=lambda item: (item[0][1], item[0][0]))
    )


def _batches(log: Path) -> list[str]:
    return re.findall(r"^batch \d+: .*$", log.read_text(), re.MULTILINE)


def main() -> None:
    """Prints a line for each batch, then for the compactions."""
    with tempfile.TemporaryDirectory(prefix="table-requests-") as name:
        folder = Path(name)
        minio = Minio(folder / "minio")
        os.environ.update(minio.environment | {"AWS_REGION": "us-east-1", "SPARK_MASTER": "local[2]"})
        ensure_bucket(parse_store_url(minio.store_url("tables")))
        counting = Counting(minio.port)
        os.environ["AWS_ENDPOINT_URL"] = counting.endpoint
        server = Bmq(["--data", str(folder / "bmq")], log=folder / "bmq.log")
        server.start()
        try:
            _stream(server.servers, counting, folder / "job.log")
            for _ in range(2):
                _compact()
                print("compaction:", _said(counting.taken()), flush=True)
        finally:
            server.stop()
            minio.stop()


def _stream(servers: str, counting: Counting, log: Path) -> None:
    topic = topic_of(servers, partitions=PARTITIONS)
    command = [
        sys.executable,
        str(ROOT / "spark-apps" / "parquet.py"),
        "--bootstrap-servers",
        servers,
        "--topic",
        topic,
        "--trigger",
        "1s",
    ]
    with log.open("wb") as out:
        job = subprocess.Popen([*command, "--output", "s3a://tables/orders"], stdout=out, stderr=out)
    try:
        for number in range(BATCHES + 1):
            values = (
                [b"%d" % number] * 100
                if number < BATCHES
                else [os.urandom(VALUE_BYTES) for _ in range(LARGE_BYTES // VALUE_BYTES)]
            )
            before = len(_batches(log))
            # compaction leaves an hour alone that is not over
            produce(servers, topic, values, timestamp=int(time() * 1000) - 2 * HOUR_MS)
            until(
                lambda before=before: len(_batches(log)) - before,  # type: ignore[misc]
                "another batch",
                WAIT_S,
                unless=lambda: job.poll() is not None,
                shows=log.read_text,
                every_s=0.2,
            )
            counts = counting.taken()
            print(" | ".join(_batches(log)[before:]), ":", _said(counts), flush=True)
        job.terminate()
        assert job.wait(WAIT_S) == 0, log.read_text()
        print("its end:", _said(counting.taken()), flush=True)
    finally:
        job.kill()


def _compact() -> None:
    arguments = ["--output", "s3a://tables/orders", "--older-than", "1s", "--vacuum-older-than", "1s"]
    subprocess.run([sys.executable, str(ROOT / "spark-apps" / "compact.py"), *arguments], check=True, timeout=WAIT_S)


if __name__ == "__main__":
    main()
