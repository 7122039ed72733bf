"""`/v1/channels`: list, get, create, change, delete channels of Databus; `/v1/watch/channels`: what changes of them."""

from functools import partial
from typing import Annotated

import msgspec
from fastapi import FastAPI, Query, Response

from bmq.errors import InvalidTopicName, UnknownChannel
from bmq.metadata.channels import StoredChannel, channel, channel_names
from bmq.metadata.image import Image
from bmq.naming.channels import check_channel_name
from bmq.naming.names import check_topic_name
from bmq_controller.api.channel_models import ChannelAsked, ChannelChanges, ChannelView, NewChannelAsked
from bmq_controller.api.channel_watch import WAIT_S_MAX, WATCH_PATH, encode_changes
from bmq_controller.api.lists import listed
from bmq_controller.api.paging import Continue, Limit, Page, page
from bmq_controller.api.parameters import CHANGED, MISSING, IfMatch, ValidateOnly
from bmq_controller.api.problems import Refused
from bmq_controller.api.sources import ApiSources, in_thread
from bmq_controller.api.versions import channel_version, etag, holds
from bmq_controller.machine.channels import find_channel
from bmq_resources.channel import ChannelSpec, topics_of
from bmq_resources.value_schemas import BadSchema, JsonSchema


def add_to(app: FastAPI, sources: ApiSources) -> None:
    """Adds the requests that list, show, create, change, delete and watch channels."""

    @app.get("/v1/channels", tags=["channels"], response_model=Page[ChannelView])
    async def list_channels(limit: Limit = 100, after: Continue = None) -> Response:
        """Channels by name."""
        image = sources.image
        return await listed(
            lambda: page(
                channel_names(image),
                key=lambda name: (name,),
                view=lambda name: _encoded(find_channel(image, name)),
                limit=limit,
                after=after,
                kind="channels",
            )
        )

    @app.post("/v1/channels", tags=["channels"], status_code=201)
    async def create_channel(
        asked: NewChannelAsked, response: Response, validate_only: ValidateOnly = False
    ) -> ChannelView:
        """Creates a channel. Its topic is not made: it comes with the first message, or is made before."""
        spec = await _stored(asked.name, asked.spec)
        await sources.leader().create_channel(asked.name, spec, validate_only=validate_only)
        if validate_only:
            response.status_code = 200
            return ChannelView(name=asked.name, version="", created_ms=0, spec=msgspec.json.decode(spec))
        response.headers["Location"] = f"/v1/channels/{asked.name}"
        return _shown(sources, asked.name, response)

    @app.get("/v1/channels/{name}", tags=["channels"], responses=MISSING)
    async def get_channel(name: str, response: Response) -> ChannelView:
        """One channel."""
        return _shown(sources, name, response)

    @app.put("/v1/channels/{name}", tags=["channels"], responses=CHANGED)
    async def change_channel(
        name: str,
        asked: ChannelAsked,
        response: Response,
        if_match: IfMatch = None,
        validate_only: ValidateOnly = False,
    ) -> ChannelView:
        """Makes a channel what is said; what is not said goes back to its default."""
        leader = sources.leader().when(holds(if_match, lambda image: _version(image, name)))
        spec = await _stored(name, asked.spec)
        await leader.change_channel(name, spec, validate_only=validate_only)
        return _shown(sources, name, response)

    @app.delete("/v1/channels/{name}", tags=["channels"], status_code=204, responses=CHANGED)
    async def delete_channel(name: str, if_match: IfMatch = None) -> None:
        """Deletes a channel. Who writes to it is refused from then on; what sidecars have accepted is still sent, and
        its topic stays.
        """
        leader = sources.leader().when(holds(if_match, lambda image: _version(image, name)))
        await leader.delete_channel(name)

    @app.get(WATCH_PATH, tags=["channels"], response_model=ChannelChanges)
    async def watch_channels(
        after: Annotated[
            str, Query(description="The `version` of the answer before; empty: all channels are wanted")
        ] = "",
        wait_seconds: Annotated[
            float, Query(ge=0, le=WAIT_S_MAX, description="How long to wait for a change, where there is none yet")
        ] = WAIT_S_MAX / 2,
    ) -> Response:
        """What changed of channels, as soon as something does. The node that is asked answers, with or without a
        leader; a request that another node handed on does not wait.
        """
        image = sources.image
        return Response(
            await in_thread(lambda: encode_changes(image, frozenset(channel_names(image)), complete=True)),
            media_type="application/json",
        )


async def _stored(name: str, spec: ChannelSpec) -> str:
    """As the controllers keep it: JSON, what is as by default left out, and the same for all who say the same. Raises
    Refused.
    """
    for field, topic in topics_of(name, spec).items():
        try:
            check_topic_name(topic)
        except InvalidTopicName as error:
            if field == "metadata.name":
                check_channel_name(name)  # which has words of its own for what no channel is called either
                why, remedy = "spec.topic: no topic may be called as this channel", "say a topic"
                raise Refused("InvalidRequest", why, remedy) from None
            why, _, remedy = str(error).rpartition(": ")
            raise Refused("InvalidRequest", f"{field}: {why}", remedy) from None
    if spec.value_schema is not None:
        try:
            await in_thread(partial(JsonSchema.of, spec.value_schema.json_schema))
        except BadSchema as error:
            why, _, remedy = str(error).rpartition(": ")
            raise Refused("InvalidRequest", f"spec.schema.json: {why}", remedy) from None
    return msgspec.json.encode(spec.said(), order="sorted").decode()


def _version(image: Image, name: str) -> str | None:
    found = channel(image, name)
    return None if found is None else channel_version(found)


def _shown(sources: ApiSources, name: str, response: Response) -> ChannelView:
    try:
        found = find_channel(sources.image, name)
    except UnknownChannel:
        raise UnknownChannel("there is no such channel: list the channels") from None
    view = _view(found)
    response.headers["ETag"] = etag(view.version)
    return view


def _view(found: StoredChannel) -> ChannelView:
    return ChannelView(
        name=found.name,
        version=channel_version(found),
        created_ms=found.created_ms,
        spec=msgspec.json.decode(found.spec),
    )


def _encoded(found: StoredChannel) -> bytes:
    """The view as JSON; what it is to be, as it is stored."""
    return msgspec.json.encode(
        {
            "name": found.name,
            "version": channel_version(found),
            "created_ms": found.created_ms,
            "spec": msgspec.Raw(found.spec.encode()),
        }
    )
