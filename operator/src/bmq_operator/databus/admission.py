"""The webhook: the API server asks it about each new pod that has the annotation; it answers in time, or not at all.

It never refuses a pod: one that cannot have a sidecar runs without, and says why. aiohttp serves it, as it does
/livez: kopf's own server is there only while kopf watches, which is on the replica that leads, and a Service leads to
all of them; it would also own the webhook's configuration, with a certificate for each process.
"""

import asyncio
import base64
import json
from ssl import SSLContext
from typing import Any, Final

import structlog
from aiohttp import web

from bmq_operator.answers import Large, parsed
from bmq_operator.databus.channel_sets import BadChannelSet
from bmq_operator.databus.injection import CLUSTER, Injection, asked_for, injected, refused
from bmq_operator.databus.named import ChannelSets
from bmq_operator.databus_settings import DatabusSettings
from bmq_operator.kube import KubeError, Manifest
from bmq_operator.metrics import DATABUS_PODS

PATH: Final = "/databus/inject"
BODY_BYTES_MAX: Final = 4 << 20
"""More than the API server takes of a pod."""
AT_ONCE: Final = 16
BODY_S: Final = 2.0
FIND_S: Final = 2.0
"""Together less than the API server waits (the chart's timeoutSeconds)."""
WARNING_MAX: Final = 250
"""The API server may cut longer ones."""
_REVIEW: Final = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}

_log = structlog.get_logger()


class Webhook:
    """Use `start`, and `stop` at the end."""

    def __init__(self, sets: ChannelSets, *, image: str, settings: DatabusSettings, context: SSLContext) -> None:
        self._sets = sets
        self._image = image
        self._settings = settings
        self._context = context
        self._under_way = 0
        self._large = Large()
        app = web.Application(client_max_size=BODY_BYTES_MAX)
        app.router.add_post(PATH, self._bounded)
        self._runner = web.AppRunner(app, access_log=None, keepalive_timeout=60)

    async def start(self) -> None:
        """Raises OSError."""
        host, _, port = self._settings.listen.rpartition(":")
        await self._runner.setup()
        await web.TCPSite(self._runner, host, int(port), ssl_context=self._context, backlog=64).start()

    @property
    def addresses(self) -> list[Any]:
        """Where it listens."""
        return list(self._runner.addresses)

    async def stop(self) -> None:
        """Answers what is under way."""
        await self._runner.cleanup()

    async def _bounded(self, request: web.Request) -> web.Response:
        if self._under_way >= AT_ONCE:
            return web.Response(status=503, text="too much is under way")
        self._under_way += 1
        try:
            async with asyncio.timeout(BODY_S):
                data = await request.read()
            async with self._large.turn(len(data)):
                review = parsed(data)
            del data
            return web.json_response(await self._answer(review))
        except TimeoutError:
            return web.Response(status=408, text="the body did not come in time")
        except (ValueError, KeyError, TypeError, AttributeError):
            return web.Response(status=400, text="this is no AdmissionReview of a pod")
        finally:
            self._under_way -= 1

    async def _answer(self, review: Manifest) -> Manifest:
        """Raises ValueError, KeyError, TypeError, AttributeError: it is none."""
        asked = review["request"]
        uid, namespace, pod = str(asked["uid"]), str(asked.get("namespace") or ""), asked["object"]
        if review.get("apiVersion") != _REVIEW["apiVersion"] or pod.get("kind", "Pod") != "Pod":
            raise ValueError("another kind")
        found = await self._injection(pod, namespace, dry_run=bool(asked.get("dryRun")))
        response: Manifest = {"uid": uid, "allowed": True}
        if found.patch:
            response["patchType"] = "JSONPatch"
            response["patch"] = base64.b64encode(json.dumps(found.patch).encode()).decode()
        if found.warnings:
            response["warnings"] = [_short(one) for one in found.warnings]
        return {**_REVIEW, "response": response}

    async def _injection(self, pod: Manifest, namespace: str, *, dry_run: bool) -> Injection:
        asked = asked_for(pod)
        if asked is None:
            DATABUS_PODS.labels("there").inc()
            return Injection()
        field, name = asked
        result, found = "failed", Injection()
        try:
            async with asyncio.timeout(FIND_S):
                if field == CLUSTER:
                    channel_set, doubt = await self._sets.follow(namespace, name, field=field, dry_run=dry_run)
                else:
                    channel_set, doubt = await self._sets.find(namespace, name, dry_run=dry_run)
            found = injected(pod, channel_set, namespace=namespace, image=self._image, settings=self._settings)
            if doubt and not found.refused:
                found = Injection(patch=found.patch, warnings=(*found.warnings, doubt))
            result = "refused" if found.refused else "injected"
        except BadChannelSet as why:
            found, result = refused(pod, str(why)), "refused"
        except TimeoutError:
            found = refused(pod, f"{field}: the API server did not say in time what {name[:100]!r} is")
        except KubeError as error:
            found = refused(pod, f"{field}: {name[:100]!r} could not be read: {error}")
        if found.refused:
            owner = (pod["metadata"].get("ownerReferences") or [{}])[0].get("name", "")
            title = pod["metadata"].get("name") or owner
            _log.warning("a pod gets no sidecar of Databus", namespace=namespace, pod=title, why=found.refused)
        DATABUS_PODS.labels(result).inc()
        return found


def _short(text: str) -> str:
    return text if len(text) <= WARNING_MAX else f"{text[: WARNING_MAX - 3]}..."
