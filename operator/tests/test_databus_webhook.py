"""The webhook over real TLS: what the API server asks is answered, whatever is the case; its certificate is exchanged
while it runs, and shared by replicas.
"""

import asyncio
import base64
import copy
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from time import time
from typing import Any

import jsonpatch
import pytest
from cryptography import x509
from databus_of_a_test import config_map, pod
from kube_of_a_test import KubeOfATest, TestClock
from tests.waiting import until_async

from bmq_operator.databus import admission
from bmq_operator.databus.injector import Injector
from bmq_operator.databus.keeping import Certificates
from bmq_operator.databus_settings import DatabusSettings
from bmq_operator.kube import KubeProblem, KubeUnreachable
from bmq_operator.settings import OperatorSettings

NAMESPACE = "bmq-system"
HOST = f"bmq-databus.{NAMESPACE}.svc"
DAY_MS = 86_400_000
SETTINGS = OperatorSettings(
    namespaces=(),
    namespace=NAMESPACE,
    image="registry/bmq:1",
    databus=DatabusSettings(enabled=True, listen="127.0.0.1:0"),
)


class Cluster(KubeOfATest):
    """With versions, and what the chart makes."""

    def __init__(self, *manifests: dict[str, Any]) -> None:
        self.version = 0
        self.fails: Exception | None = None
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bmq-databus", "namespace": NAMESPACE}}
        hooks = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "bmq-databus", "namespace": ""},
            "webhooks": [{"name": "databus.bmq.io", "clientConfig": {"service": {"name": "bmq-databus"}}}],
        }
        super().__init__(secret, hooks, *manifests)

    def keep(self, manifest: dict[str, Any]) -> None:
        self.version += 1
        super().keep({**manifest, "metadata": {**manifest["metadata"], "resourceVersion": str(self.version)}})

    async def get(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        await asyncio.sleep(0)
        if self.fails is not None:
            raise self.fails
        return copy.deepcopy(await super().get(kind, namespace, name))

    async def patch(self, manifest: dict[str, Any], operations: list[dict[str, Any]]) -> dict[str, Any]:
        meta = manifest["metadata"]
        there = self.manifests[manifest["kind"], meta.get("namespace", ""), meta["name"]]
        self.keep(jsonpatch.apply_patch(copy.deepcopy(there), operations))
        return manifest

    @property
    def told(self) -> bytes:
        """Whom the API server trusts."""
        [one] = self.manifests["MutatingWebhookConfiguration", "", "bmq-databus"]["webhooks"]
        return base64.b64decode(one["clientConfig"].get("caBundle", ""))

    @property
    def certificate(self) -> x509.Certificate:
        """What is in the Secret."""
        data = self.manifests["Secret", NAMESPACE, "bmq-databus"]["data"]
        return x509.load_pem_x509_certificate(base64.b64decode(data["tls.crt"]))

    @asynccontextmanager
    async def asking(self, injector: Injector) -> AsyncIterator["Asking"]:
        """As the API server connects: by the name of the Service, trusting whom it was told."""
        [(host, port)] = injector._webhook.addresses
        context = ssl.create_default_context(cadata=self.told.decode())
        reader, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=HOST)
        try:
            yield Asking(reader, writer)
        finally:
            writer.close()


class Asking:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        self.serial_number = x509.load_der_x509_certificate(shown).serial_number

    async def send(self, body: bytes, *, length: int | None = None) -> tuple[int, Any]:
        """Status and answer; `length`: what is said of the body."""
        head = f"POST {admission.PATH} HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {length or len(body)}\r\n\r\n"
        self._writer.write(head.encode() + body)
        status, *headers = (await self._reader.readuntil(b"\r\n\r\n")).decode().splitlines()
        [length] = [one.split(":")[1] for one in headers if one.lower().startswith("content-length:")]
        text = await self._reader.readexactly(int(length))
        return int(status.split()[1]), json.loads(text) if text.startswith(b"{") else text

    async def about(self, given: dict[str, Any]) -> dict[str, Any]:
        """The response to a review of a new pod."""
        status, answer = await self.send(review(given))
        assert status == 200, answer
        assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
        assert isinstance(answer["response"], dict) and answer["response"]["uid"] == "u-1"
        return answer["response"]


def review(given: Any) -> bytes:
    asked = {"uid": "u-1", "namespace": "shop", "operation": "CREATE", "object": given}
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}).encode()


@asynccontextmanager
async def serving(kube: Cluster, clock: TestClock | None = None) -> AsyncIterator[Injector]:
    """One that is ready."""
    clock = clock or real_clock()
    injector = Injector(kube, clock, SETTINGS)  # type: ignore[arg-type]
    assert injector.why_not_ready() == "the webhook has no certificate yet"
    await injector.start()
    try:
        await until_async(lambda: not injector.why_not_ready(), "a certificate", 20)
        yield injector
    finally:
        await injector.stop()


def real_clock(*, days: float = 0) -> TestClock:
    """Certificates are checked by the machine's time."""
    clock = TestClock()
    clock.ms = round(time() * 1000 + days * DAY_MS)
    return clock


def patched(given: dict[str, Any], response: dict[str, Any]) -> dict[str, Any]:
    assert response["patchType"] == "JSONPatch"
    patch = json.loads(base64.b64decode(response["patch"]))
    return dict(jsonpatch.apply_patch(copy.deepcopy(given), patch))


def test_a_pod_that_asks_has_its_sidecar_one_that_has_it_stays_and_no_other_one_is_touched() -> None:
    async def main() -> None:
        kube = Cluster(config_map())
        async with serving(kube) as injector, kube.asking(injector) as asking:
            response = await asking.about(pod())
            after = patched(pod(), response)
            assert response["allowed"] and "warnings" not in response
            assert after["spec"]["initContainers"][0]["image"] == "registry/bmq:1"
            for given in (after, pod({})):
                assert await asking.about(given) == {"uid": "u-1", "allowed": True}

    asyncio.run(main())


def cluster(namespace: str, **spec: Any) -> dict[str, Any]:
    return {"kind": "Cluster", "metadata": {"name": "bmq", "namespace": namespace}, "spec": spec}


@pytest.mark.parametrize(
    ("there", "says"),
    [
        ([], "there is no ConfigMap 'shop-channels' in namespace shop: create it with the label bmq.io/use=allowed"),
        ([config_map(labels={})], "label it bmq.io/use=allowed"),
        ([config_map(**{"channels.yaml": "a: ["})], "is no YAML"),
        ([config_map(tokensSecret="writers")], "there is no Secret 'writers'"),
        (
            [
                config_map(tokensSecret="w"),
                {"kind": "Secret", "metadata": {"name": "w", "namespace": "shop"}, "data": {"tokens": "c2VjcmV0"}},
            ],
            "the Secret w does not say",
        ),
        ([config_map(cluster="q/bmq")], "there is none that takes what is in namespace shop"),
        ([config_map(cluster="q/bmq"), cluster("q")], "there is none that takes what is in namespace shop"),
        (
            [config_map(cluster="q/bmq"), cluster("q", topicsFrom={"namespaces": "shop"})],
            "there is none that takes what is in namespace shop",
        ),
    ],
)
def test_a_pod_whose_channel_set_cannot_be_used_runs_and_says_why(there: list[dict[str, Any]], says: str) -> None:
    async def main() -> None:
        kube = Cluster(*there)
        async with serving(kube) as injector, kube.asking(injector) as asking:
            response = await asking.about(pod())
            assert response["allowed"]
            note = patched(pod(), response)["metadata"]["annotations"]["bmq.io/databus-refused"]
            assert says in note and "c2VjcmV0" not in note
            [warning] = response["warnings"]
            assert len(warning) <= 250 and warning[:200] == note[:200]

    asyncio.run(main())


def test_a_cluster_of_another_namespace_that_takes_this_one_is_written_to_and_one_to_come_is_warned_of() -> None:
    async def main() -> None:
        kube = Cluster(config_map(cluster="q/bmq"), cluster("q", topicsFrom={"namespaces": ["shop"]}))
        async with serving(kube) as injector, kube.asking(injector) as asking:
            response = await asking.about(pod())
            [sidecar] = patched(pod(), response)["spec"]["initContainers"]
            assert sidecar["env"][0]["value"] == "bmq-bootstrap.q.svc:9092" and "warnings" not in response
            kube.keep(config_map(cluster="bmq"))
            response = await asking.about(pod())
            assert "there is none yet" in response["warnings"][0]
            assert patched(pod(), response)["spec"]["initContainers"]

    asyncio.run(main())


@pytest.mark.parametrize(
    "fails",
    [
        KubeUnreachable("GET: TimeoutError"),
        KubeProblem(status=403, reason="Forbidden", message='User "x" cannot get configmaps'),
        TimeoutError(),
    ],
)
def test_an_api_server_that_does_not_answer_the_operator_keeps_no_pod_back(fails: Exception) -> None:
    async def main() -> None:
        kube = Cluster(config_map())
        async with serving(kube) as injector, kube.asking(injector) as asking:
            kube.fails = fails
            response = await asking.about(pod())
            assert response["allowed"] and "no sidecar of Databus" in response["warnings"][0]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b'{"request": 1}', 400),
        (review(None), 400),
        (review([]), 400),
        (review({"metadata": {"annotations": {"bmq.io/databus": "shop-channels"}}}), 400),
        (review(pod()).replace(b"admission.k8s.io/v1", b"admission.k8s.io/v9"), 400),
        (review({**pod(), "kind": "Job"}), 400),
        (b"[" * 200_000, 400),
        (b" " * (admission.BODY_BYTES_MAX + 1), 413),
    ],
)
def test_what_is_no_review_of_a_pod_is_told_so_and_the_next_one_is_answered(body: bytes, status: int) -> None:
    async def main() -> None:
        kube = Cluster(config_map())
        async with serving(kube) as injector, kube.asking(injector) as asking:
            assert (await asking.send(body))[0] == status
            async with kube.asking(injector) as another:
                assert (await another.about(pod()))["patch"]

    asyncio.run(main())


def test_so_many_at_a_time_are_answered_and_a_body_that_does_not_come_gives_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admission, "BODY_S", 0.2)

    async def main() -> None:
        kube = Cluster(config_map())
        async with serving(kube) as injector, kube.asking(injector) as asking:
            async with AsyncExitStack() as opened:
                stalled = [await opened.enter_async_context(kube.asking(injector)) for _ in range(admission.AT_ONCE)]
                answers = [asyncio.create_task(one.send(b"{", length=10)) for one in stalled]
                await until_async(lambda: injector._webhook._under_way == admission.AT_ONCE, "all are under way")
                assert (await asking.send(review(pod())))[0] == 503
                assert {status for status, _ in await asyncio.gather(*answers)} == {408}
            async with kube.asking(injector) as another:
                assert (await another.about(pod()))["patch"]

    asyncio.run(main())


def test_a_certificate_is_renewed_in_time_and_shown_without_a_restart_while_connections_stay() -> None:
    async def main() -> None:
        kube, clock = Cluster(config_map()), real_clock(days=-70)
        async with serving(kube, clock) as injector, kube.asking(injector) as before:
            assert kube.certificate.serial_number == before.serial_number
            clock.ms = real_clock().ms
            await injector._certificates.look()
            second = kube.certificate.serial_number
            assert second != before.serial_number
            assert (await before.about(pod()))["patch"], "its connection stays"
            async with kube.asking(injector) as after:
                assert after.serial_number == second
                assert (await after.about(pod()))["patch"]
            await injector._certificates.look()
            assert kube.certificate.serial_number == second, "what is right stays"

    asyncio.run(main())


def test_replicas_share_one_certificate_whoever_of_them_was_quicker() -> None:
    async def main() -> None:
        kube, clock = Cluster(), real_clock()
        replicas = [
            Certificates(kube, clock, settings=SETTINGS.databus, namespace=NAMESPACE)  # type: ignore[arg-type]
            for _ in range(5)
        ]
        for days in (0, 70, 140):
            clock.ms = real_clock(days=days).ms
            before = kube.told
            await asyncio.gather(*(one.look() for one in replicas))
            shown = {one._shown for one in replicas}
            assert len(shown) == 1, "each shows another one"
            assert kube.told and (not before or kube.told == before)

    asyncio.run(main())


def test_a_bundle_that_somebody_took_away_is_told_again_and_a_missing_secret_is_named() -> None:
    async def main() -> None:
        kube = Cluster()
        certificates = Certificates(kube, real_clock(), settings=SETTINGS.databus, namespace=NAMESPACE)  # type: ignore[arg-type]
        await certificates.look()
        told = kube.told
        del kube.manifests["MutatingWebhookConfiguration", "", "bmq-databus"]["webhooks"][0]["clientConfig"]["caBundle"]
        await certificates.look()
        assert kube.told == told
        kube.drop("Secret", NAMESPACE, "bmq-databus")
        with pytest.raises(ValueError, match="there is no Secret bmq-databus in namespace bmq-system: bmq's chart"):
            await certificates.look()
        assert certificates.why_not_ready() == "", "it shows what it has"

    asyncio.run(main())
