"""A schema registry for tests: the part of Confluent's documented REST API that readers use, over HTTP on loopback,
with its error codes.

No registry that others wrote is to be had from the package indexes, so this one is held to the API's documentation: GET
/schemas/ids/{id} (with fetchMaxId=true), GET /schemas/types, GET /subjects, GET /subjects/{subject}/versions/{version},
JSON {"error_code", "message"} for what is not there, basic authentication. Ids are integers of 32 bits, as Confluent's
server takes them; a path with another number is not one of its paths.
"""

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from tests.waiting import let_pass

from bmq_spark.values import registry as registries
from bmq_spark.values.protobuf_records import registered_descriptors
from bmq_spark.values.unknown_ids import _known_ids


class RegistryServer:
    """What is registered, what was asked, which answers are to fail first, which status ids get that it takes for none,
    and whether it tells the highest of its ids: not all that speak the API do.
    """

    def __init__(self) -> None:
        self.by_id: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[dict[str, Any]]] = {}
        self.asked: list[str] = []
        self.failures: list[int] = []
        self.pages: list[tuple[int, bytes]] = []
        """What a gateway before it answers first."""
        self.byte_s = 0.0
        """How long each byte of its answers takes."""
        self.odd: dict[int, int] = {}
        self.credentials: str | None = None
        self.tells_highest = True
        self.url = ""

    def register(
        self, subject: str, schema: str, *, kind: str = "AVRO", references: list[dict[str, Any]] | None = None
    ) -> int:
        """The id."""
        number = len(self.by_id) + 1
        body: dict[str, Any] = {"schema": schema}
        if kind != "AVRO":
            body["schemaType"] = kind
        if references:
            body["references"] = references
        self.by_id[number] = body
        versions = self.subjects.setdefault(subject, [])
        versions.append({"subject": subject, "id": number, "version": len(versions) + 1, **body})
        return number

    def answer(self, path: str, authorization: str | None) -> tuple[int, Any]:
        """Status and body."""
        self.asked.append(path)
        if self.failures:
            return self.failures.pop(0), {"error_code": 50001, "message": "Error in the backend data store"}
        if (
            self.credentials is not None
            and authorization != "Basic " + base64.b64encode(self.credentials.encode()).decode()
        ):
            return 401, {"error_code": 401, "message": "Unauthorized"}
        path, _, query = path.partition("?")
        match [unquote(part) for part in path.strip("/").split("/")]:
            case ["schemas", "types"]:
                return 200, ["JSON", "PROTOBUF", "AVRO"]
            case ["subjects"]:
                return 200, list(self.subjects)
            case ["schemas", "ids", number] if int(number) in self.odd:
                return self.odd[int(number)], {"error_code": self.odd[int(number)], "message": "No id"}
            case ["schemas", "ids", number] if int(number) < 2**31:
                more = {"maxId": max(self.by_id)} if query == "fetchMaxId=true" and self.tells_highest else {}
                return (
                    (200, self.by_id[int(number)] | more)
                    if int(number) in self.by_id
                    else (404, {"error_code": 40403, "message": f"Schema {number} not found"})
                )
            case ["subjects", subject, "versions", version]:
                versions = self.subjects.get(subject)
                if versions is None:
                    return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
                index = len(versions) if version == "latest" else int(version)
                return (
                    (200, versions[index - 1])
                    if index <= len(versions)
                    else (404, {"error_code": 40402, "message": f"Version {version} not found."})
                )
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}


@contextmanager
def serving() -> Iterator[RegistryServer]:
    """A registry with nothing in it, on a port of its own."""
    registry = RegistryServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body by one packet: else each answer waits 40 ms for an acknowledgement

        def do_GET(self) -> None:
            if registry.pages:
                status, content = registry.pages.pop(0)
            else:
                status, body = registry.answer(self.path, self.headers["Authorization"])
                content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if registry.byte_s:
                self._drip(content)
            else:
                self.wfile.write(content)

        def _drip(self, content: bytes) -> None:
            with suppress(OSError):  # nobody waits for it any more
                for byte in content:
                    self.wfile.write(bytes([byte]))
                    self.wfile.flush()
                    let_pass(registry.byte_s, "the registry is slow")

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        registry.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def met_anew() -> Iterator[RegistryServer]:
    """The same, while this process knows nothing of any registry."""
    for cached in (registries._line, registries._by_id, registries._version, registered_descriptors, _known_ids):
        cached.cache_clear()
    with serving() as registry:
        yield registry
