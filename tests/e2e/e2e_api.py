"""Looks at the API server without a kubectl for each: that takes 0.16 s of a processor, and tests look thousands of
times. One `kubectl proxy` for each kubeconfig has the credentials.
"""

import atexit
import json
import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

TIMEOUT_S: Final = 60
_BMQ: Final = "apis/bmq.io/v1alpha1"
_KINDS: Final = {
    "pod": ("api/v1", "pods"),
    "service": ("api/v1", "services"),
    "secret": ("api/v1", "secrets"),
    "configmap": ("api/v1", "configmaps"),
    "event": ("api/v1", "events"),
    "deployment": ("apis/apps/v1", "deployments"),
    "statefulset": ("apis/apps/v1", "statefulsets"),
    "job": ("apis/batch/v1", "jobs"),
    **{f"{one}.bmq.io": (_BMQ, f"{one}s") for one in ("cluster", "topic", "lane", "channel", "parquetsink")},
}
"""Those of a namespace by what kubectl calls one of them: (path of the group, name in paths)."""
_BY_NAME: Final = {
    name: found
    for one, found in _KINDS.items()
    for name in (one, f"{one.partition('.')[0]}s{one[len(one.partition('.')[0]) :]}")
}


class NotFound(Exception):
    """What the API server says is not there, or not allowed, in kubectl's words."""


def path_of(arguments: Sequence[str], *, namespace: str) -> str | None:
    """Where the API has what `kubectl get ARGUMENTS` shows; None for what only kubectl knows."""
    words = list(arguments)
    if not words or words.pop(0) != "get":
        return None
    selector, named = "", []
    while words:
        word = words.pop(0)
        if word == "--selector" and words:
            selector = words.pop(0)
        elif word.startswith("--selector="):
            selector = word.partition("=")[2]
        elif word.startswith("-"):
            return None
        else:
            named += word.split("/")
    if not 1 <= len(named) <= 2 or named[0] not in _BY_NAME or (selector and len(named) == 2):
        return None
    group, plural = _BY_NAME[named[0]]
    path = f"/{group}/namespaces/{quote(namespace or 'default')}/{plural}"
    if len(named) == 2:
        return f"{path}/{quote(named[1])}"
    return f"{path}?{urlencode({'labelSelector': selector})}" if selector else path


class Api:
    """A `kubectl proxy` and one connection to it."""

    def __init__(self, line: Sequence[str], environment: Mapping[str, str]) -> None:
        self._proxy = subprocess.Popen(
            [*line, "proxy", "--port=0"], stdout=subprocess.PIPE, text=True, env=dict(environment)
        )
        atexit.register(self._end)
        assert self._proxy.stdout is not None
        said = self._proxy.stdout.readline()
        self._port = int(said.rpartition(":")[2] or 0)
        assert self._port, f"kubectl proxy: {said!r}"
        self._connection: HTTPConnection | None = None
        self._one_at_a_time = threading.Lock()

    def get(self, path: str) -> Any:
        """What is there, lists as kubectl shows them. Raises NotFound."""
        with self._one_at_a_time:
            status, found = self._asked(path)
        if status >= 300:
            raise NotFound(f"Error from server ({found.get('reason', status)}): {found.get('message', '')}")
        if isinstance(found.get("items"), list):
            kind, version = str(found["kind"]).removesuffix("List"), found["apiVersion"]
            found["items"] = [{"kind": kind, "apiVersion": version, **one} for one in found["items"] or ()]
        return found

    def _asked(self, path: str) -> tuple[int, Any]:
        for is_last in (False, True):
            if self._connection is None:
                self._connection = HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT_S)
            try:
                self._connection.request("GET", path)
                answer = self._connection.getresponse()
                return answer.status, json.loads(answer.read())
            except (OSError, HTTPException, ValueError) as error:  # an idle connection was closed, or it is busy
                self._connection.close()
                self._connection = None
                if is_last:
                    raise NotFound(f"kubectl proxy: {error}") from error
        raise AssertionError

    def _end(self) -> None:
        self._proxy.terminate()
        self._proxy.wait(10)


@cache
def api_of(command: Path, kubeconfig: Path) -> Api:
    """One for all tests."""
    return Api([str(command)], {**os.environ, "KUBECONFIG": str(kubeconfig)})
