"""One request after the other until one is answered, every try of it kept as a write of a register of its own."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bmq.wire.messages import Message
from bmq_sim.client import RETRIABLE, ConnectionLost, SimClient
from bmq_sim.history import History, Written

Codes = Callable[[Message], int]
"""The error code of an answer."""


async def set_until_told(
    client: SimClient,
    history: History,
    *,
    api_key: int,
    fields: dict[str, Any],
    code_of: Codes,
    writes: Sequence[tuple[str, str]],
    fine: frozenset[int] = frozenset(),
) -> int:
    """Asks until there is an answer that no client tries again after; `fine` are error codes that say so much as
    success. Returns the code.

    `writes`: what (register, value) one success means. A try without an answer may come true later: it stays in the
    history without an end. An answer that says "try again" may have been done all the same.
    """
    attempt = 0
    while True:
        tries: list[Written] = [history.write(register, value) for register, value in writes]
        try:
            answer = await (await client.connection()).send(api_key, fields)
        except ConnectionLost:
            code = None
        else:
            code = code_of(answer)
            if code == 0 or code in fine:
                turn = history.turn()
                for one in tries:
                    one.acknowledged = turn
                return code
            if code not in RETRIABLE:
                history.refused.append(f"{client.name}: API {api_key} was told {answer} for {fields}")
                return code
        attempt += 1
        await client.back_off(attempt)


def codes_of(answer: Any) -> Iterator[int]:
    """Every error code that an answer has, wherever it stands."""
    if isinstance(answer, list):
        for each in answer:
            yield from codes_of(each)
    elif isinstance(answer, Message):
        for name, value in vars(answer).items():
            if name == "error_code":
                yield int(value)
            else:
                yield from codes_of(value)
