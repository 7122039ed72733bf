"""What the client takes the API's answers to be is what the API answers."""

from typing import Any, Optional, get_args, get_origin, get_type_hints, is_typeddict

import pytest
from pydantic import BaseModel

from bmq_admin import documents, pages
from bmq_admin.requests import Listing, Request
from bmq_controller.api import channel_models, lane_models, models, node_models
from bmq_controller.api.app import build_api

ANSWERED: dict[Any, type[BaseModel]] = {
    documents.Problem: models.Problem,
    documents.Cluster: models.ClusterView,
    documents.Clock: lane_models.ClockView,
    documents.Node: node_models.NodeView,
    documents.StoreStep: node_models.StoreStep,
    documents.Store: node_models.StoreView,
    documents.TopicSummary: models.TopicSummary,
    documents.Topic: models.TopicView,
    documents.Partition: models.PartitionView,
    documents.Config: models.ConfigView,
    documents.Configs: models.ConfigsView,
    documents.BaseReads: lane_models.BaseReadsView,
    documents.Quota: lane_models.QuotaView,
    documents.Lane: lane_models.LaneView,
    documents.Channel: channel_models.ChannelView,
    documents.Group: models.GroupView,
}


def shape(kind: Any) -> str:
    """A field's type in words, documents by the name of what is answered."""
    if not get_args(kind):
        return str(ANSWERED.get(kind, kind).__name__)
    of = sorted(map(shape, get_args(kind)))
    return f"{getattr(get_origin(kind), '__name__', 'Union').replace('UnionType', 'Union')}[{', '.join(of)}]"


@pytest.mark.parametrize("document", ANSWERED, ids=lambda document: document.__name__)
def test_each_field_of_a_document_is_one_of_the_answer_and_of_its_type(document: Any) -> None:
    answered = ANSWERED[document].model_fields
    for name, kind in get_type_hints(document).items():
        assert shape(kind) == shape(answered[name].annotation), name


def test_every_document_is_held_to_an_answer() -> None:
    assert set(ANSWERED) == {each for each in vars(documents).values() if is_typeddict(each)}


def test_a_type_that_is_another_is_seen() -> None:
    assert shape(int | None) == shape(Optional[int]) == "Union[NoneType, int]"  # noqa: UP045
    assert shape(list[documents.StoreStep]) == shape(list[node_models.StoreStep])
    assert len({shape(kind) for kind in (int, str, int | None, list[int], dict[str, int])}) == 5


def test_every_page_is_one_of_the_apis() -> None:
    openapi = build_api(None).openapi()  # type: ignore[arg-type]  # describing itself it asks for nothing
    asked = [
        pages.cluster(),
        pages.clock(),
        pages.store(),
        pages.nodes(),
        pages.node(7),
        pages.drain(7),
        pages.cordon(7),
        pages.uncordon(7),
        pages.topics(),
        pages.topic("a"),
        pages.partitions("a"),
        pages.create_topic("a", partitions=1, configs={}),
        pages.grow_topic("a", total=2, version="v"),
        pages.change_topic("a", {}, version="v"),
        pages.delete_topic("a", version="v"),
        pages.configs(),
        pages.change_configs({}, version="v"),
        pages.lane("a"),
        pages.create_lane({"name": "a"}),
        pages.change_lane("a", {}, version="v"),
        pages.delete_lane("a", version="v"),
        pages.channels(),
        pages.channel("a"),
        pages.create_channel("a", {}),
        pages.change_channel("a", {}, version="v"),
        pages.delete_channel("a", version="v"),
        pages.watched_channels("", wait_s=1),
        pages.group("a"),
    ]
    for one in asked:
        request: Request[Any] = one.page(None) if isinstance(one, Listing) else one
        path = request.target.partition("?")[0].removeprefix("/v1").strip("/").split("/")
        assert any(
            request.method.lower() in operations and matches(path, known.removeprefix("/v1").strip("/").split("/"))
            for known, operations in openapi["paths"].items()
        ), f"{request.method} {request.target}"


def matches(path: list[str], known: list[str]) -> bool:
    return len(path) == len(known) and all(
        there.startswith("{") or here == there for here, there in zip(path, known, strict=True)
    )
