"""Proves at start-up, on the very store that is configured, that a second create of a key fails: everything else rests
on it.

MinIO once ignored conditions without a read quorum (minio/minio#21603), and gateways exist that ignore If-None-Match
altogether.
"""

import asyncio
import contextlib
from typing import Final

from bmq.clocks.store_clock import compared
from bmq.errors import Conflict, NotApplied, StoreError, StoreUnusable, UnknownOutcome
from bmq.ports import Clock, ObjectStore, Rng
from bmq.storage.keys import is_scratch

PREFIX: Final = "selftest/"
RACERS: Final = 8
RACES_MAX: Final = 3
"""A race in which some outcome stays unknown proves nothing and is run again."""
LEFTOVER_AGE_MS: Final = 3_600_000


async def prove_store(store: ObjectStore, clock: Clock, rng: Rng) -> int | None:
    """How far the store's clock is ahead of ours, in ms; None where ours jumps. Some dozen requests; deletes what it
    made.

    Raises StoreUnusable (one line, with the remedy) where the store is not reached, refuses, or does not keep the
    contract of ObjectStore.
    """
    first, raced, timed = (f"{PREFIX}{rng.uuid()}" for _ in range(3))
    try:
        await _second_create_fails(store, first, rng)
        await _one_racer_wins(store, raced, rng)
        await _listing_is_complete(store, sorted((first, raced)))
        comparison = await compared(store, clock, key=timed)
        await _clear_leftovers(store, (await store.head(first)).modified_ms)
    except StoreUnusable:
        raise
    except StoreError as error:
        raise StoreUnusable(f"self-test of the object store failed: {_with_remedy(error)}") from error
    finally:
        with contextlib.suppress(StoreError):
            for key in (first, raced):
                await store.delete(key)
    return comparison.skew_ms if comparison is not None else None


def _with_remedy(error: StoreError) -> str:
    """A folder's errors say themselves what to do; of a bucket it is nearly always one of three things."""
    text = str(error)
    return text if "data folder" in text else f"{text}: check its address, its bucket and the keys' permissions"


async def _second_create_fails(store: ObjectStore, key: str, rng: Rng) -> None:
    mine, other = rng.nonce(), rng.nonce()
    await store.create(key, [mine])
    try:
        await store.create(key, [other])
    except Conflict:
        pass
    else:
        raise StoreUnusable(
            "the object store lets a second create of one key succeed: it lacks conditional writes "
            "(If-None-Match); use another store"
        )
    await _holds(store, key, mine)


async def _one_racer_wins(store: ObjectStore, key: str, rng: Rng) -> None:
    for _ in range(RACES_MAX):
        nonces = [rng.nonce() for _ in range(RACERS)]
        outcomes = await asyncio.gather(*(store.create(key, [nonce]) for nonce in nonces), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, Conflict | NotApplied | UnknownOutcome):
                raise outcome
        winners = [nonce for nonce, outcome in zip(nonces, outcomes, strict=True) if outcome is None]
        if len(winners) > 1:
            raise StoreUnusable(
                f"the object store let {len(winners)} of {RACERS} concurrent creates of one key succeed: use one "
                "whose conditional writes are atomic"
            )
        if winners:
            return await _holds(store, key, winners[0])
        await store.delete(key)
    raise StoreUnusable(
        f"of {RACERS} concurrent creates of one key none was confirmed, {RACES_MAX} times ({outcomes[0]}): look at "
        "the store's health"
    )


async def _holds(store: ObjectStore, key: str, expected: bytes) -> None:
    if await store.get(key) != expected:
        raise StoreUnusable(
            "the object store does not give back what was just written: it lacks read-after-write consistency; use "
            "another store"
        )
    if await store.get(key, start=4, length=8) != expected[4:12]:
        raise StoreUnusable("the object store does not serve ranges of an object; use another store")


async def _listing_is_complete(store: ObjectStore, expected: list[str]) -> None:
    listed = [meta.key async for meta in store.list(PREFIX) if meta.key in expected]
    after = [meta.key async for meta in store.list(PREFIX, after=expected[0]) if meta.key in expected]
    if listed != expected or after != expected[1:]:
        raise StoreUnusable(
            "the object store's listing lacks what was just written, or is out of order: use another store"
        )


async def _clear_leftovers(store: ObjectStore, now_ms: int) -> None:
    """What a process killed in its self-test left; both times are the store's."""
    async for meta in store.list(PREFIX):
        if is_scratch(meta.key) and meta.modified_ms < now_ms - LEFTOVER_AGE_MS:
            await store.delete(meta.key)
