"""Operations that wait for the leader: a bounded queue, and the folding of many of them into one entry of the metadata
log.

A decision is made on the image that the operations before it in the same entry will lead to, so its answer, also a
refusal, is given only once that entry is durable.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import structlog

from bmq.errors import BmqError, ControllerUnavailable, FormatError
from bmq.metadata.fold import apply
from bmq.metadata.image import Image
from bmq.metadata.invariants import check_step
from bmq.metadata.records import AnyRecord
from bmq.metadata.storable import check_storable
from bmq_controller import metrics
from bmq_controller.machine.decision import Decision
from bmq_controller.machine.nodes import consequences

DECISION_WORK: Final = 1_000
"""What it is to decide about an operation that names one thing, in units of 30 ns."""
TOPIC_WORK: Final = 1_000
ELEMENT_WORK: Final = 100
LIST_WORK: Final = 8_000
"""The same of each topic that is to be made, of each thing else that is named, and of a value that is a list, to which
something is added or taken out."""
FOLDING_WORK: Final = 4_000
"""The same where its records are folded in, for which parts of the image are copied, too."""

_log = structlog.get_logger(__name__)


def text_work(text: str | None) -> int:
    """The same of a value that is given."""
    return 0 if text is None else 2 * len(text)


@dataclass(frozen=True, slots=True)
class Operation:
    """One caller's wish. `future` resolves with the decision's result; a caller that gave up has cancelled it."""

    name: str
    decide: Callable[[Image], Decision[Any]]
    future: "asyncio.Future[Any]"
    work: int = 0
    """What it is to decide about it beyond that, as far as it can be said before."""
    beside: bool = False
    """It is much work: it is decided about in a thread, and has an entry to itself."""
    neutral: bool = False
    """Its records change nothing but the position, whatever the image: it need not wait for such work."""


@dataclass(frozen=True, slots=True)
class Draft:
    """An entry to be: the records, the image that they lead to, and what to answer once they are durable."""

    image: Image
    records: list[AnyRecord]
    answers: list[tuple[Operation, object]]

    def after(self, newest: Image) -> "Draft":
        """The same behind entries that changed nothing."""
        if newest.position + 1 == self.image.position:
            return self
        return replace(self, image=replace(self.image, position=newest.position + 1))

    def deliver(self) -> None:
        """Answers everyone. Only once the records are durable and the image is published."""
        for operation, answer in self.answers:
            refused = isinstance(answer, BmqError)
            metrics.OPERATIONS.labels(operation.name, type(answer).__name__ if refused else "ok").inc()
            if operation.future.done():
                continue
            if isinstance(answer, BmqError):
                operation.future.set_exception(answer)
            else:
                operation.future.set_result(answer)

    def fail(self, error: BmqError) -> None:
        """Whether the records will be durable is not known."""
        for operation, _ in self.answers:
            if not operation.future.done():
                operation.future.set_exception(error)


class OperationQueue:
    """What waits for the next entry, in the order of arrival; but what the cluster itself lives by goes before what
    clients ask for, of which there may be thousands.
    """

    def __init__(self, *, waiting_max: int) -> None:
        self._first: deque[Operation] = deque()
        self._waiting: deque[Operation] = deque()
        self._waiting_max = waiting_max
        self._arrived = asyncio.Event()

    def __len__(self) -> int:
        return len(self._first) + len(self._waiting)

    def put(self, operation: Operation, *, first: bool = False) -> None:
        """Raises ControllerUnavailable where too many wait."""
        queue = self._first if first else self._waiting
        if len(queue) >= self._waiting_max:
            raise ControllerUnavailable(f"{len(queue)} operations wait for the controller already: try again later")
        queue.append(operation)
        self._arrived.set()
        metrics.WAITING.set(len(self))

    async def arrival(self, timeout_s: float) -> bool:
        """Waits until an operation is there; False where none came in time."""
        if len(self):
            return True
        self._arrived.clear()
        try:
            async with asyncio.timeout(timeout_s):
                await self._arrived.wait()
        except TimeoutError:
            return False
        return True

    def take_beside(self) -> Operation | None:
        """The next operation, where it is one that is decided about in a thread, and its caller still waits."""
        queue = self._first or self._waiting
        while queue and queue[0].beside:
            operation = queue.popleft()
            metrics.WAITING.set(len(self))
            if not operation.future.done():
                return operation
        return None

    def take_neutral(self) -> Operation | None:
        """One that need not wait for those before it."""
        found = next((operation for operation in self._first if operation.neutral), None)
        if found is not None:
            self._first.remove(found)
            metrics.WAITING.set(len(self))
        return found

    def draft(self, base: Image, *, records_max: int, work_max: int) -> Draft:
        """Takes operations until the entry after `base` has `records_max` records, or is `work_max` of work, or none is
        left.
        """
        taken: list[Operation] = []
        try:
            return self._draft(base, taken, records_max=records_max, work_max=work_max)
        except Exception:
            # A bug, which ends the leader: those that were taken are answered with all that wait.
            self._waiting.extendleft(reversed(taken))
            raise
        finally:
            metrics.WAITING.set(len(self))

    def _draft(self, base: Image, taken: list[Operation], *, records_max: int, work_max: int) -> Draft:
        return _checked(base, self._take(base, taken, records_max=records_max, work_max=work_max), taken)

    def _take(self, base: Image, taken: list[Operation], *, records_max: int, work_max: int) -> Draft:
        draft, work = Draft(base, [], []), 0
        while len(self) and len(draft.records) < records_max and work < work_max:
            queue = self._first or self._waiting
            if queue[0].beside:
                break
            operation = queue.popleft()
            if not operation.future.done():
                taken.append(operation)
                records = len(draft.records)
                draft = _with(draft, base.position + 1, operation)
                work += operation.work
                work += DECISION_WORK if len(draft.records) == records else FOLDING_WORK
        return _with_consequences(draft, base.position + 1)

    def fail(self, error: BmqError) -> None:
        """Nothing of what waits will be done."""
        while len(self):
            operation = (self._first or self._waiting).popleft()
            if not operation.future.done():
                operation.future.set_exception(error)
        metrics.WAITING.set(0)


def draft_alone(base: Image, operation: Operation) -> Draft:
    """The entry after `base` with one operation alone. Pure but for what it logs: for any thread."""
    draft = _with(Draft(base, [], []), base.position + 1, operation)
    return _checked(base, _with_consequences(draft, base.position + 1), [operation])


def draft_neutral(base: Image, operation: Operation) -> Draft:
    """The entry after `base` with an operation that changes nothing, and without consequences, which do."""
    draft = _with(Draft(base, [], []), base.position + 1, operation)
    assert replace(draft.image, position=base.position) == base or not draft.records
    return draft


def _checked(base: Image, draft: Draft, taken: Sequence[Operation]) -> Draft:
    try:
        check_step(base, draft.image)
    except FormatError:
        # One of the decisions is wrong, and nobody must ever read it: find out which, and let the others go on.
        return _checked_one_by_one(base, taken)
    return draft


def _with(draft: Draft, position: int, operation: Operation) -> Draft:
    """The draft and one more operation.

    Deciding, encoding and folding leave nothing behind where they fail, whatever the reason: the operation is refused,
    alone. Encoded before it is folded, because nothing may rest on what could not be written.
    """
    try:
        decision = operation.decide(draft.image)
        image = draft.image
        if decision.records:
            check_storable(decision.records)
            image = apply(draft.image, position, decision.records)
    except BmqError as error:
        draft.answers.append((operation, error.with_traceback(None)))  # which has this frame, and so the answer itself
        return draft
    except Exception as error:  # noqa: BLE001 what one request meets must not depose the leader: whoever leads next would meet it again
        _log.exception("operation refused because it broke down, this is a bug in bmq", operation=operation.name)
        draft.answers.append((operation, _bug(operation, error)))
        return draft
    draft.records.extend(decision.records)
    draft.answers.append((operation, decision.result))
    return Draft(image, draft.records, draft.answers)


def _bug(operation: Operation, error: Exception) -> ControllerUnavailable:
    return ControllerUnavailable(f"{operation.name} was refused, this is a bug in bmq: {type(error).__name__}: {error}")


def _with_consequences(draft: Draft, position: int) -> Draft:
    following = consequences(draft.image)
    if not following:
        return draft
    return Draft(apply(draft.image, position, following), [*draft.records, *following], draft.answers)


def _checked_one_by_one(base: Image, operations: Sequence[Operation]) -> Draft:
    position = base.position + 1
    draft = Draft(base, [], [])
    for operation in operations:
        then = _with(Draft(draft.image, list(draft.records), list(draft.answers)), position, operation)
        try:
            check_step(draft.image, then.image)
        except FormatError as error:
            _log.error(
                "operation refused because its records break an invariant", operation=operation.name, error=str(error)
            )
            draft.answers.append((operation, _bug(operation, error)))
        else:
            draft = then
    return _with_consequences(draft, position)
