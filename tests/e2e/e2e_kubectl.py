"""kubectl as the tests call it. What does not come true in time is explained by conditions, events and logs."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from e2e_api import NotFound, api_of, path_of
from e2e_watched import Conditions, NotShown
from tests.waiting import until

Found = TypeVar("Found")
Manifest = dict[str, Any]

_TAIL_LINES = 40


class Refused(Exception):
    """What kubectl or the API server said instead of doing it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubectl:
    """kubectl against one cluster, in one namespace where `namespace` is given."""

    command: Path
    kubeconfig: Path
    namespace: str = ""

    def within(self, namespace: str) -> "Kubectl":
        """The same in that namespace."""
        return Kubectl(command=self.command, kubeconfig=self.kubeconfig, namespace=namespace)

    def __call__(self, *arguments: str, given: str | None = None, timeout_s: float = 120) -> str:
        """Standard output. Raises Refused."""
        done = subprocess.run(
            self.line(*arguments),
            input=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
            env=self.environment,
        )
        if done.returncode:
            raise Refused(f"kubectl {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    @property
    def environment(self) -> dict[str, str]:
        """With which kubectl and helm find the cluster, and keep what they cache beside it."""
        return os.environ | {
            "KUBECONFIG": str(self.kubeconfig),
            "KUBECACHEDIR": str(self.kubeconfig.parent / "kubectl.cache"),
        }

    def line(self, *arguments: str) -> list[str]:
        """The command line."""
        return [str(self.command), *(["--namespace", self.namespace] if self.namespace else []), *arguments]

    def json(self, *arguments: str) -> Any:
        """The output of a command that takes `--output json`. Raises Refused."""
        path = path_of(arguments, namespace=self.namespace)
        if path is None:
            return json.loads(self(*arguments, "--output", "json"))
        try:
            return api_of(self.command, self.kubeconfig).get(path)
        except NotFound as refused:
            raise Refused(f"kubectl {' '.join(arguments)}: {refused}") from None

    def apply(self, *manifests: Manifest | Path, dry_run: bool = False) -> str:
        """Server-side, validated strictly. Raises Refused."""
        listed = {"apiVersion": "v1", "kind": "List", "items": [one for one in manifests if isinstance(one, dict)]}
        options = [
            "--server-side",
            "--validate=strict",
            "--field-manager=bmq-tests",
            *(["--dry-run=server"] if dry_run else []),
        ]
        said = self("apply", *options, "--filename", "-", given=json.dumps(listed)) if listed["items"] else ""
        files = [str(one) for one in manifests if isinstance(one, Path)]
        return said + (
            self("apply", *options, *(part for file in files for part in ("--filename", file))) if files else ""
        )

    def until(self, what: str, found: Callable[[], Found | None], *, timeout_s: float = 120) -> Found:
        """What `found` returns once it is neither None nor false. Asks again and again, and explains the namespace when
        time is up.
        """
        return until(
            found, what, timeout_s, not_yet=(Refused, NotShown), shows=self.explanation, every_s=0.2, every_s_max=1.0
        )

    def until_condition(
        self, resource: str, *, status: str = "True", reason: str = "", kind: str = "Ready", timeout_s: float = 120
    ) -> Manifest:
        """The condition once it is found for the resource's newest generation."""

        watched = Conditions(self.line("get", resource), self.environment)

        def there() -> Manifest | None:
            if (told := watched.next()) is None:
                return None
            generation, conditions = told
            for condition in conditions:
                newest = condition.get("observedGeneration", generation) >= generation
                if (
                    condition["type"] == kind
                    and condition["status"] == status
                    and newest
                    and reason in ("", condition.get("reason"))
                ):
                    return condition
            return None

        try:
            return self.until(f"{resource}: {kind}={status} {reason}", there, timeout_s=timeout_s)
        finally:
            watched.end()

    def until_ready(self, *resources: str, timeout_s: float = 120) -> None:
        """Until all of them have the condition Ready."""
        for resource in resources:
            self.until_condition(resource, timeout_s=timeout_s)

    def explanation(self) -> str:
        """What is there and what went wrong."""
        told = [self._said("get", "pods,services,clusters.bmq.io,topics.bmq.io,lanes.bmq.io", "--output", "wide")]
        told.append(
            self._said(
                "get",
                "clusters.bmq.io,topics.bmq.io,lanes.bmq.io",
                "--output",
                "jsonpath={range .items[*]}{.kind}/{.metadata.name} {.status}\n{end}",
            )
        )
        told.append(self._said("get", "events", "--sort-by", ".lastTimestamp"))
        for pod in self._said("get", "pods", "--output", "name").split():
            told.append(f"--- {pod}\n" + self._said("logs", pod, "--all-containers", "--tail", str(_TAIL_LINES)))
        return "\n".join(told)

    def _said(self, *arguments: str) -> str:
        try:
            return self(*arguments)
        except (Refused, subprocess.TimeoutExpired) as refused:
            return f"{refused}\n"

    def exec(self, pod: str, *command: str, given: str | None = None, container: str = "") -> str:
        """Standard output of a command in a pod."""
        interactive = ["--stdin"] if given is not None else []
        return self(
            "exec", *interactive, *(["--container", container] if container else []), pod, "--", *command, given=given
        )

    @contextmanager
    def forwarded(self, target: str, ports: Sequence[str]) -> Iterator[list[int]]:
        """Ports of this machine that lead to a pod's or a Service's, as in `kubectl port-forward`; LOCAL:REMOTE, or
        :REMOTE for a free one.
        """
        forward = subprocess.Popen(
            self.line("port-forward", target, *ports), stdout=subprocess.PIPE, text=True, env=self.environment
        )
        try:
            assert forward.stdout is not None
            found: list[int] = []
            while len(found) < len(ports):
                line = forward.stdout.readline()
                assert line, f"port-forward to {target} ended"
                if line.startswith("Forwarding from 127.0.0.1:"):
                    found.append(int(line.split(":")[1].split(" ")[0]))
            yield found
        finally:
            forward.terminate()
            forward.communicate()
