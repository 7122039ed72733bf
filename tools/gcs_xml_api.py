"""The part of Google Cloud Storage's XML API that fake-gcs-server lacks: creates under a condition, and listings page
by page.

Stands in front of it and asks it by its JSON API; conditions are judged there, where the object is made. Knows what bmq
uses: PUT, GET, HEAD and DELETE of an object, and `list-type=2` of a bucket. Errors are those of the XML API's
reference.
"""

import json
import sys
from collections.abc import Mapping
from email.utils import formatdate
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit
from xml.sax.saxutils import escape

PAGE_KEYS_MAX = 1000
PASSED_ON = (
    "content-type",
    "content-range",
    "etag",
    "last-modified",
    "x-goog-generation",
    "x-goog-hash",
    "accept-ranges",
)
SAID = {
    400: ("InvalidArgument", "Invalid argument."),
    404: ("NoSuchKey", "The specified key does not exist."),
    412: ("PreconditionFailed", "At least one of the pre-conditions you specified did not hold."),
    416: ("InvalidRange", "The requested range cannot be satisfied."),
}
NO_BUCKET = ("NoSuchBucket", "The specified bucket does not exist.")


class XmlApi(ThreadingHTTPServer):
    """Serves at a port of this machine, each connection in a thread of its own; `behind` is fake-gcs-server's."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, *, behind: int) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.behind = behind

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # bmq does not wait for ever
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: XmlApi

    def setup(self) -> None:
        super().setup()
        self._json_api = HTTPConnection("127.0.0.1", self.server.behind)

    def finish(self) -> None:
        self._json_api.close()
        super().finish()

    def do_PUT(self) -> None:
        bucket, name, _ = self._target()
        query = {"uploadType": "media", "name": name}
        if (generation := self.headers.get("x-goog-if-generation-match")) is not None:
            query["ifGenerationMatch"] = generation
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status, _, answer = self._ask("POST", f"/upload/storage/v1/b/{quote(bucket)}/o?{urlencode(query)}", body)
        if status != 200:
            return self._refuse(status, bucket)
        made = json.loads(answer)
        return self._answer(200, {"ETag": f'"{made["etag"]}"', "x-goog-generation": made["generation"]})

    def do_GET(self) -> None:
        bucket, name, query = self._target()
        if not name:
            return self._list(bucket, query)
        headers = {"Range": self.headers["Range"]} if "Range" in self.headers else {}
        status, answered, body = self._ask(
            self.command, f"/download/storage/v1/b/{quote(bucket)}/o/{quote(name, safe='')}?alt=media", headers=headers
        )
        if status not in (200, 206):
            return self._refuse(status, bucket)
        passed = {header: value for header in PASSED_ON if (value := answered.headers.get(header)) is not None}
        length = answered.headers["Content-Length"] if self.command == "HEAD" else str(len(body))
        return self._answer(status, {**passed, "Content-Length": length}, body)

    do_HEAD = do_GET

    def do_DELETE(self) -> None:
        bucket, name, _ = self._target()
        status, _, _ = self._ask("DELETE", f"/storage/v1/b/{quote(bucket)}/o/{quote(name, safe='')}")
        if status >= 400:
            return self._refuse(status, bucket)
        return self._answer(204, {})

    def _list(self, bucket: str, query: Mapping[str, str]) -> None:
        after = query.get("start-after", "")
        asked = {
            "prefix": query.get("prefix", ""),
            "maxResults": min(int(query.get("max-keys", PAGE_KEYS_MAX)), PAGE_KEYS_MAX),
        }
        if "continuation-token" in query:
            asked["pageToken"] = query["continuation-token"]
        elif after:
            asked["startOffset"] = after  # which is part of the listing, while start-after is not
        status, _, body = self._ask("GET", f"/storage/v1/b/{quote(bucket)}/o?{urlencode(asked)}")
        if status != 200:
            return self._refuse(status, bucket)
        page = json.loads(body)
        found = [item for item in page.get("items", []) if item["name"] != after]
        token = page.get("nextPageToken")
        more = f"<NextContinuationToken>{escape(token)}</NextContinuationToken>" if token else ""
        contents = "".join(
            f"<Contents><Key>{escape(item['name'])}</Key><Generation>{item['generation']}</Generation>"
            f'<LastModified>{item["updated"]}</LastModified><ETag>"{item["etag"]}"</ETag><Size>{item["size"]}</Size></Contents>'
            for item in found
        )
        return self._answer_xml(
            200,
            f"<ListBucketResult><Name>{bucket}</Name><KeyCount>{len(found)}</KeyCount>"
            f"<IsTruncated>{'true' if token else 'false'}</IsTruncated>{more}{contents}</ListBucketResult>",
        )

    def _target(self) -> tuple[str, str, dict[str, str]]:
        """(bucket, object, query)"""
        split = urlsplit(self.path)
        bucket, _, name = split.path.lstrip("/").partition("/")
        return unquote(bucket), unquote(name), dict(parse_qsl(split.query))

    def _ask(
        self, method: str, path: str, body: bytes = b"", *, headers: Mapping[str, str] | None = None
    ) -> tuple[int, HTTPResponse, bytes]:
        self._json_api.request(method, path, body, {"Content-Type": "application/octet-stream", **(headers or {})})
        response = self._json_api.getresponse()
        return response.status, response, response.read()

    def _refuse(self, status: int, bucket: str) -> None:
        code, message = SAID.get(status, ("InternalError", "We encountered an internal error. Please try again."))
        if status == 404 and self._ask("GET", f"/storage/v1/b/{quote(bucket)}")[0] == 404:
            code, message = NO_BUCKET
        self._answer_xml(status, f"<Error><Code>{code}</Code><Message>{message}</Message></Error>")

    def _answer_xml(self, status: int, text: str) -> None:
        self._answer(
            status,
            {"Content-Type": "application/xml; charset=UTF-8"},
            f"<?xml version='1.0' encoding='UTF-8'?>{text}".encode(),
        )

    def _answer(self, status: int, headers: Mapping[str, str], body: bytes = b"") -> None:
        self.send_response_only(status)
        for name, value in {"Date": formatdate(usegmt=True), "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
