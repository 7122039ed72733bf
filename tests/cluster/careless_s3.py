"""An S3 server that bmq must not be given: it takes creates of keys that exist. In memory, in threads, without a look
at signatures.
"""

import threading
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import time
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.waiting import let_pass

RACE_S: Final = 0.2


class CarelessS3:
    """`looks_first`: it refuses a key that is there when it looks, but others may make it between its look and its
    write.
    """

    def __init__(self, *, looks_first: bool = False) -> None:
        self.objects: dict[str, bytes] = {}
        store = self

        class Handler(_Handler):
            objects = store.objects
            looks = looks_first

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="careless S3", daemon=True)
        self._thread.start()

    def store_url(self) -> str:
        return f"s3://careless/cluster?endpoint=http://127.0.0.1:{self._server.server_address[1]}"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    objects: dict[str, bytes]
    looks: bool

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if self.looks and self.headers["If-None-Match"] == "*":
            if self._key in self.objects:
                return self._answer(412, _error("PreconditionFailed"))
            let_pass(RACE_S, "the race of two writers, which both looked before")
        self.objects[self._key] = data
        return self._answer(200)

    def do_GET(self) -> None:
        if not self._key:
            return self._answer(200, self._listing())
        data = self.objects.get(self._key)
        if data is None:
            return self._answer(404, _error("NoSuchKey"))
        asked = self.headers["Range"]
        if asked is None:
            return self._answer(200, data)
        first, _, last = asked.removeprefix("bytes=").partition("-")
        part = data[int(first) : int(last) + 1 if last else None]
        return self._answer(206, part, **{"Content-Range": f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}"})

    def do_HEAD(self) -> None:
        known = not self._key or self._key in self.objects
        self._answer(200 if known else 404, self.objects.get(self._key, b""))

    def do_DELETE(self) -> None:
        self.objects.pop(self._key, None)
        self._answer(204)

    @property
    def _key(self) -> str:
        """Without the bucket."""
        return unquote(urlsplit(self.path).path).lstrip("/").partition("/")[2]

    def _listing(self) -> bytes:
        query = parse_qs(urlsplit(self.path).query)
        prefix, after = query.get("prefix", [""])[0], query.get("start-after", [""])[0]
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>e</ETag><Size>{len(data)}</Size></Contents>"
            for key, data in sorted(self.objects.items())
            if key.startswith(prefix) and key > after
        )
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>".encode()

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {
            "Last-Modified": formatdate(time(), usegmt=True),
            "ETag": '"e"',
            "Content-Length": str(len(body)),
            **headers,
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Says nothing."""


def _error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
