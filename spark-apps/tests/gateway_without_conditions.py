"""A gateway to buckets that ignores If-None-Match: every create succeeds, and the last one counts. And one that heeds
it, and turns requests away.
"""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

_ENTRY = "<Contents><Key>{}</Key><LastModified>2026-11-23T00:00:00.000Z</LastModified><ETag>1</ETag><Size>{}</Size></Contents>"


class Gateway(ThreadingHTTPServer):
    """Serves from its start to `stop`; `objects` by bucket and key. A listing has `page_count` keys by one answer."""

    page_count = 1000
    heeds_conditions = False
    is_late = False

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        super().__init__(("127.0.0.1", 0), _Requests)
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class BusyGateway(Gateway):
    """Turns away the next `times` requests that are `chosen` by method and path: by 503, or where `cuts` by no answer.
    `is_late`: what it turns away is done nevertheless.
    """

    heeds_conditions = True

    def __init__(self) -> None:
        self.times = 0
        self.chosen: Callable[[str, str], bool] = lambda *_: True
        self.cuts = False
        super().__init__()

    def turns_away(self, method: str, path: str) -> bool:
        turns = self.times > 0 and self.chosen(method, path)
        self.times -= turns
        return turns


class _Requests(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Gateway

    def log_message(self, *_: Any) -> None:
        pass

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        turned_away = self._turned_away()
        if turned_away and not self.server.is_late:
            return
        if not self.server.heeds_conditions or not self.headers.get("If-None-Match"):
            self.server.objects[self._key()] = content
        elif self.server.objects.setdefault(self._key(), content) is not content:
            self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
            return
        if not turned_away:
            self._answer(200, ETag='"1"')

    def do_GET(self) -> None:
        if self._turned_away():
            return
        asked = parse_qs(urlsplit(self.path).query)
        if "list-type" in asked:
            bucket = self._key().strip("/") + "/"
            prefix = bucket + asked.get("prefix", [""])[0]
            after = bucket + asked.get("continuation-token", asked.get("start-after", [""]))[0]
            found = [
                (key, content)
                for key, content in sorted(self.server.objects.items())
                if key.startswith(prefix) and key > after
            ]
            page = found[: self.server.page_count]
            listed = "".join(_ENTRY.format(key.removeprefix(bucket), len(content)) for key, content in page)
            more = "<IsTruncated>false</IsTruncated>"
            if len(page) < len(found):
                token = page[-1][0].removeprefix(bucket)
                more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>"
            self._answer(200, f"<ListBucketResult><Name>b</Name>{more}{listed}</ListBucketResult>".encode())
        elif (content := self.server.objects.get(self._key())) is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        else:
            first, _, last = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
            whole = {"ETag": '"1"', "Last-Modified": "Mon, 23 Nov 2026 00:00:00 GMT"}
            if "Range" not in self.headers:
                self._answer(200, content, **whole)
                return
            part = content[int(first) : int(last) + 1 if last else None]
            self._answer(
                206, part, **whole, **{"Content-Range": f"bytes {first}-{int(first) + len(part) - 1}/{len(content)}"}
            )

    do_HEAD = do_GET

    def do_DELETE(self) -> None:
        if self._turned_away():
            return
        self.server.objects.pop(self._key(), None)
        self._answer(204)

    def _turned_away(self) -> bool:
        gateway = self.server
        if not isinstance(gateway, BusyGateway) or not gateway.turns_away(self.command, self.path):
            return False
        if gateway.cuts:
            self.close_connection = True
        else:
            self._answer(503, b"<Error><Code>SlowDown</Code><Message>Reduce your rate.</Message></Error>")
        return True

    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).lstrip("/")

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
