"""An API server that has Lanes, and tells them as one does: in pages of as many as are asked for, and by a watch."""

import json
from typing import Any, Final

from aiohttp import web

LANES: Final = "lanes"


def lane(name: str, *, junk: str = "", spec: dict[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
    """A Lane with so much in a field that takes anything."""
    about = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "resourceVersion": "1", **meta}
    affinity = {"proxies": {"placement": {"affinity": {"junk": junk}}}}
    return {"metadata": about, "spec": {**affinity, **(spec or {})}}


class PagedServer:
    """`limits`: what was asked for; `events`: what a watch tells."""

    def __init__(self, lanes: list[dict[str, Any]]) -> None:
        self.texts = [json.dumps(one) for one in lanes]
        self.limits: list[int] = []
        self.events: list[str] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            stream = web.StreamResponse()
            await stream.prepare(request)
            for event in self.events:
                await stream.write(f"{event}\n".encode())
            return stream
        limit, first = int(request.query["limit"]), int(request.query.get("continue", "0"))
        self.limits.append(limit)
        following = str(first + limit) if first + limit < len(self.texts) else ""
        items = ",".join(self.texts[first : first + limit])
        about = f'"metadata":{{"continue":"{following}","resourceVersion":"9"}}'
        return web.Response(
            text=f'{{"apiVersion":"bmq.io/v1alpha1","items":[{items}],"kind":"LaneList",{about}}}',
            content_type="application/json",
        )
