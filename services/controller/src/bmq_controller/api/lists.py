"""How lists are answered: each page is made and encoded beside the event loop, and bounded by its bytes."""

from collections.abc import Callable

from fastapi import Response

from bmq_controller.api.paging import Page, encode_page
from bmq_controller.api.sources import in_thread


async def listed(choose: Callable[[], Page[bytes]]) -> Response:
    """The page that `choose` gives, of items as JSON. It is called in a thread: what may change is looked at before."""
    return Response(await in_thread(lambda: encode_page(choose())), media_type="application/json")
