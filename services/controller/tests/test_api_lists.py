"""Lists of the API: what is asked for much is put together beside the event loop, in pages of so many bytes."""

import asyncio
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

import fastapi.routing
import pytest
from controller_committed import Committed
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from bmq.metadata.image import Image
from bmq.roles.admin import AdminRequest
from bmq.roles.controller import NewTopic
from bmq_controller.api.app import build_api
from bmq_controller.api.asgi import call
from bmq_controller.api.front import LARGE_BYTES_MAX, LARGE_PER_ADDRESS, REQUESTS_PER_ADDRESS
from bmq_controller.api.paging import PAGE_BYTES_MAX, Page, as_json, encode_page, numbered_page, page
from bmq_controller.api.problems import Refused
from bmq_controller.machine.channels import create_channel
from bmq_controller.machine.lanes import LaneWanted, create_lane

MANY = 100
SPEC = json.dumps({"schema": {"json": {"title": "ü" * 4_000, "type": "object"}}, "topic": "t0"}, ensure_ascii=False)


@dataclass
class Leading:
    """A leading controller, as far as lists ask it."""

    draining: frozenset[int] = frozenset()
    lease_s: float = 1.0

    def __post_init__(self) -> None:
        self.silent_s: dict[int, float] = {}
        self.troubles: dict[int, str] = {}

    def loads_later(self) -> Callable[[], dict[Any, float]]:
        return dict


class Sources:
    """A node's that leads, with this image."""

    def __init__(self, image: Image) -> None:
        self.image = image

    def leader(self) -> Leading:
        return Leading()


def of_much() -> Image:
    """As many of each kind as a page may be asked for, and more."""
    cluster = Committed(brokers=5)
    cluster.create(*(NewTopic(name=f"t{number}", partitions=2) for number in range(MANY)))
    for number in range(MANY):
        cluster.commit(create_channel(cluster.image, number, f"c{number}", SPEC).records)
        patterns = tuple(f"{number}-{one}-".ljust(240, "ü") for one in range(40))
        wanted = LaneWanted(name=f"l{number}", reads_base=patterns, reads_base_bytes_per_s=4096)
        cluster.commit(create_lane(cluster.image, number, wanted).records)
    cluster.create(NewTopic(name="own", partitions=1, lane="l7"))
    return cluster.image


IMAGE = of_much()
LISTS = ("/v1/channels", "/v1/lanes", "/v1/topics", "/v1/placement", "/v1/nodes")


async def pages(path: str, image: Image = IMAGE) -> list[tuple[bytes, Any]]:
    """All of a list, page by page: as it was sent, and what it says."""
    app, found, token = build_api(Sources(image)), [], None  # type: ignore[arg-type]
    while True:
        query = "limit=1000" + ("" if token is None else f"&continue={quote(token)}")
        reply = await call(app, AdminRequest(method="GET", path=path, query=query, headers={}))
        assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
        found.append((reply.body, json.loads(reply.body)))
        token = found[-1][1]["continue"]
        if token is None:
            return found


@pytest.mark.parametrize("path", [*LISTS, "/v1/groups"])
def test_a_page_is_made_and_encoded_beside_the_event_loop(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[str]()
    first = Page.__init__

    def noted(self: Any, **fields: Any) -> None:
        made.append(threading.current_thread().name)
        first(self, **fields)

    async def encoded(**_: Any) -> Any:
        pytest.fail("it is encoded in the event loop")

    monkeypatch.setattr(Page, "__init__", noted)
    monkeypatch.setattr(fastapi.routing, "serialize_response", encoded)
    found = asyncio.run(pages(path))
    assert len(made) == len(found) and all(name.startswith("admin page") for name in made)


@pytest.mark.parametrize("path", LISTS)
def test_pages_of_much_are_bounded_by_their_bytes_and_tell_everything_once(path: str) -> None:
    found = asyncio.run(pages(path))
    assert all(len(sent) < PAGE_BYTES_MAX + 4 * MANY + 1_000 for sent, _ in found)
    items = [item for _, one in found for item in one["items"]]
    if path == "/v1/channels":
        assert len(found) == 2
        assert [item["name"] for item in items] == sorted(f"c{number}" for number in range(MANY))
        assert all(item["spec"] == json.loads(SPEC) for item in items)
    elif path == "/v1/lanes":
        assert len(found) > 2
        assert [item["name"] for item in items] == sorted(IMAGE.lanes)
        assert [item["topics"] for item in items if item["name"] in ("l6", "l7")] == [0, 1]
    else:
        assert len(items) == {"/v1/topics": MANY, "/v1/placement": 2 * MANY + 1, "/v1/nodes": 5}[path]


def test_what_an_address_may_ask_for_at_a_time_is_within_its_part_of_large_answers() -> None:
    """None of it is made and then refused."""
    envelope_bytes = 4_000
    assert REQUESTS_PER_ADDRESS * (PAGE_BYTES_MAX + envelope_bytes) <= LARGE_BYTES_MAX // LARGE_PER_ADDRESS


def test_a_page_of_lanes_looks_once_at_each_node() -> None:
    looked = 0

    class Nodes(dict[Any, Any]):
        def values(self) -> Any:
            nonlocal looked
            looked += 1
            return super().values()

    image = replace(IMAGE, nodes=Nodes(IMAGE.nodes))
    found = asyncio.run(pages("/v1/lanes", image))
    assert looked == len(found)


sized = st.lists(st.integers(1, 2 * PAGE_BYTES_MAX), max_size=12)


@given(sized, st.integers(1, 5))
def test_a_page_ends_before_it_has_more_bytes_with_one_item_at_least(sizes: list[int], limit: int) -> None:
    token, found = None, list[int]()
    while True:
        one = numbered_page(len(sizes), view=lambda at: b"1" * sizes[at], limit=limit, after=token, kind="x")
        expected = sizes[len(found) : len(found) + limit]
        while len(expected) > 1 and sum(expected) > PAGE_BYTES_MAX:
            expected.pop()
        assert [len(item) for item in one.items] == expected
        found += expected
        token = one.next_token
        if token is None:
            break
    assert found == sizes


def test_a_page_of_json_is_what_the_same_page_of_views_would_be() -> None:
    class View(BaseModel):
        name: str
        said: str | None = Field(default=None, serialization_alias="what is said")

    def pages_of(view: Callable[[str], Any], token: str | None) -> Page[Any]:
        return page("ab", key=lambda name: (name,), view=view, limit=1, after=token, kind="x")

    def shown(name: str) -> View:
        return View(name=name, said='\u00fc"')

    token = None
    for _ in range(2):
        plain = Page[View](items=(one := pages_of(shown, token)).items, next_token=one.next_token)
        assert encode_page(pages_of(as_json(shown), token)) == plain.model_dump_json(by_alias=True).encode()
        token = plain.next_token
    assert encode_page(Page(items=[])) == b'{"items":[],"continue":null}'


@pytest.mark.parametrize("key", [("a",), (1, 2), (-3,), (-(2**40),)])
def test_a_number_that_is_none_is_refused(key: tuple[Any, ...]) -> None:
    token = page([0, 1], key=lambda _: key, view=str, limit=1, after=None, kind="x").next_token
    with pytest.raises(Refused, match="continue token"):
        numbered_page(5, view=str, limit=1, after=token, kind="x")
