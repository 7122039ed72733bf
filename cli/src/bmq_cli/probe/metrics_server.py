"""Health and metrics of a process that has no event loop, served from threads."""

from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Final

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

_REQUEST_S: Final = 10.0


class MetricsServer:
    """Serves /livez, /readyz and /metrics. `why_dead` and `why_not_ready` say what is wrong, or nothing."""

    def __init__(
        self, host: str, port: int, *, why_dead: Callable[[], str | None], why_not_ready: Callable[[], str | None]
    ) -> None:
        """Raises OSError where it cannot listen. `port` is then the one that 0 became."""

        class Handler(BaseHTTPRequestHandler):
            timeout = _REQUEST_S

            def do_GET(self) -> None:
                match self.path.partition("?")[0]:
                    case "/livez":
                        self._health(why_dead())
                    case "/readyz":
                        self._health(why_not_ready())
                    case "/metrics":
                        self._say(200, CONTENT_TYPE_LATEST, generate_latest())
                    case _:
                        self._say(404, "text/plain; charset=utf-8", b"there are /livez, /readyz and /metrics\n")

            def _health(self, missing: str | None) -> None:
                self._say(200 if missing is None else 503, "text/plain; charset=utf-8", f"{missing or 'ok'}\n".encode())

            def _say(self, status: int, content_type: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("content-type", content_type)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *_: Any) -> None:
                """Health checks are not news."""

        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
