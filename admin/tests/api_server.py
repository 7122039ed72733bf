"""An HTTP server that answers as a test tells it to, and keeps what it was asked."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, dict[str, str], bytes]


class Server:
    """Keeps what it was asked."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.url = ""


@contextmanager
def serving(*answers: Answer) -> Iterator[Server]:
    server = Server(*answers)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            server.asked.append(
                (self.command, self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            )
            status, headers, data = server.answers.pop(0)
            self.send_response(status)
            for name, value in {"content-length": str(len(data)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_DELETE = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{listening.server_address[1]}"
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        listening.shutdown()
        thread.join()
        listening.server_close()


def ok(document: Any) -> Answer:
    return 200, {}, json.dumps(document).encode()


def problem(status: int, code: str) -> Answer:
    return status, {}, json.dumps({"what": "node 7", "why": "because", "remedy": "mend it", "code": code}).encode()
