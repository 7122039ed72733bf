"""A front that lets only those through to an Iceberg REST catalog who bring a token, and gives tokens for a client's
credentials (OAuth2); and one that delivers twice.
"""

import json
import secrets
from base64 import b64decode
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from time import monotonic
from urllib.error import HTTPError
from urllib.parse import parse_qs, unquote
from urllib.request import Request, urlopen

TOKENS = "/oauth2/token"
GRACE_S = 120
_PASSED_ON = ("content-type", "accept", "x-client-version")


class Front:
    """`token` is good for ever; those that `client_id` gets by `client_secret` and `scope` are said to be good for
    `expires_s`, and are not exchanged. They are good for GRACE_S longer: on a busy machine a client may be late."""

    def __init__(self, catalog: str, *, expires_s: float = 3600) -> None:
        self.token = secrets.token_urlsafe()
        self.client_id, self.client_secret, self.scope = "job", secrets.token_urlsafe(), "tables"
        self.given = 0
        """How many tokens it gave."""
        self.refused: list[str] = []
        """What it answered with no to, by path."""
        self._catalog = catalog
        self._expires_s = expires_s
        self._until_s: dict[str, float] = {self.token: float("inf")}
        front = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                front._answer(self)

            do_HEAD = do_POST = do_DELETE = do_GET

            def log_message(self, *_: object) -> None:
                """Nothing is logged: tokens are in the headers."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        Thread(target=self._server.serve_forever, daemon=True).start()
        self.uri = f"http://127.0.0.1:{self._server.server_port}"

    @property
    def token_uri(self) -> str:
        return self.uri + TOKENS

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, asked: BaseHTTPRequestHandler) -> None:
        body = asked.rfile.read(int(asked.headers.get("Content-Length") or 0))
        kind, _, token = asked.headers.get("Authorization", "").partition(" ")
        if asked.path == TOKENS:
            status, content = self._give(body, b64decode(token).decode() if kind == "Basic" else "")
        elif self._knows(kind, token):
            status, content = self._forward(asked, body)
        else:
            error = {
                "message": "no token" if not token else "not a token of this catalog",
                "type": "NotAuthorizedException",
                "code": 401,
            }
            status, content = 401, json.dumps({"error": error}).encode()
        if status in (400, 401):
            self.refused.append(asked.path)
        asked.send_response(status)
        asked.send_header("Content-Type", "application/json")
        if status != 204:
            asked.send_header("Content-Length", str(len(content)))
        asked.end_headers()
        if asked.command != "HEAD":
            asked.wfile.write(content)

    def _knows(self, kind: str, token: str) -> bool:
        return kind == "Bearer" and self._until_s.get(token, 0) > monotonic()

    def _give(self, body: bytes, basic: str) -> tuple[int, bytes]:
        form = {key: values[0] for key, values in parse_qs(body.decode()).items()}
        found = (
            tuple(map(unquote, basic.split(":", 1))) if basic else (form.get("client_id"), form.get("client_secret"))
        )
        if form.get("grant_type") != "client_credentials":
            return 400, json.dumps(
                {"error": "unsupported_grant_type", "error_description": "only client_credentials"}
            ).encode()
        if found != (self.client_id, self.client_secret):
            return 401, json.dumps(
                {"error": "invalid_client", "error_description": "no such client, or another secret"}
            ).encode()
        if form.get("scope") != self.scope:
            return 400, json.dumps({"error": "invalid_scope", "error_description": f"not {form.get('scope')}"}).encode()
        token = secrets.token_urlsafe()
        self._until_s[token] = monotonic() + self._expires_s + GRACE_S
        self.given += 1
        return 200, json.dumps(
            {
                "access_token": token,
                "token_type": "bearer",
                "expires_in": int(self._expires_s),
                "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
            }
        ).encode()

    def _forward(self, asked: BaseHTTPRequestHandler, body: bytes) -> tuple[int, bytes]:
        headers = {name: value for name, value in asked.headers.items() if name.lower() in _PASSED_ON}
        try:
            with urlopen(
                Request(self._catalog + asked.path, data=body or None, headers=headers, method=asked.command),
                timeout=60,
            ) as answer:
                return answer.status, answer.read()
        except HTTPError as error:
            return error.code, error.read()


class DoublingFront(Front):
    """Knows everybody, and delivers twice what a test chooses by its body, as a proxy does that heard no answer; the
    second answer is the client's.
    """

    def __init__(self, catalog: str) -> None:
        super().__init__(catalog)
        self.chosen: Callable[[bytes], bool] = lambda _: False
        self.times = 0
        """So many more of them."""
        self.doubled: list[int] = []
        """The status of each such answer."""

    def _knows(self, kind: str, token: str) -> bool:
        return True

    def _forward(self, asked: BaseHTTPRequestHandler, body: bytes) -> tuple[int, bytes]:
        if self.times == 0 or not self.chosen(body):
            return super()._forward(asked, body)
        self.times -= 1
        super()._forward(asked, body)
        status, content = super()._forward(asked, body)
        self.doubled.append(status)
        return status, content
