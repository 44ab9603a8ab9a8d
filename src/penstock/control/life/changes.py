"""What happens to declared queries, and what it makes of them.

A change is data; `reduce` decides by the table (`transitions.py`) whether it happens, and returns the declaration then.
Numbers of computations and places are chosen by who makes the change, and are never used again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from penstock.algebra.nodes.query import SinkSpec, Start, StartMode
from penstock.control.life.transitions import Event, check, happens
from penstock.control.phases import Phase
from penstock.control.stored_catalog import StoredComputation, StoredObject, StoredQuery
from penstock.language.plan_choices import without_no_choices

#: Where a computation begins that is to take the place of another one: as soon as nothing is missing.
WARM_WAIT = Start(StartMode.WARM, wait=True)


@dataclass(frozen=True)
class QueryChange(ABC):
    """A change of a declared query."""

    event: ClassVar[Event]

    @abstractmethod
    def made(self, one: StoredObject, query: StoredQuery) -> StoredObject:
        """Return the declaration after it. query: of `one`."""

    def concerns(self, query: StoredQuery) -> int | None:
        """Return the place whose answers it is about; None for no place. query: after it."""
        return None


class _OfAnswer(QueryChange):
    """A change of what answers."""

    def concerns(self, query: StoredQuery) -> int | None:
        return query.place


def reduce(one: StoredObject, change: QueryChange) -> StoredObject:
    """Return a declared query after a change; the same object where nothing happens. Raises PenstockError P0701 where a
    statement is refused."""
    check(one, change.event)
    return change.made(one, query_of(one)) if happens(one, change.event) else one


def query_of(one: StoredObject) -> StoredQuery:
    """Return the query of a declaration that is one."""
    assert one.query is not None, "it is a query"
    return one.query


def _with(one: StoredObject, **values: object) -> StoredObject:
    """Return a declaration with fields of its query changed."""
    return replace(one, query=replace(query_of(one), **values))  # type: ignore[arg-type]  # fields by name


def _answering(one: StoredObject, phase: Phase, **values: object) -> StoredObject:
    """Return a declaration with fields of the computation that answers changed."""
    answer = replace(query_of(one).answer, phase=phase, **values)  # type: ignore[arg-type]  # fields by name
    return _with(one, answer=answer)


def _with_each(one: StoredObject, changed: Callable[[StoredComputation], StoredComputation]) -> StoredObject:
    """Return a declaration with each of its computations changed."""
    query = query_of(one)
    return _with(one, answer=changed(query.answer), beside=None if query.beside is None else changed(query.beside))


def ended(one: StoredObject) -> StoredObject:
    """Return a query that is not computed any more: it is then what it was to be."""
    wished = one.as_wished
    query = query_of(wished)
    answer = replace(query.answer, plan=wished.wished_plan, keeps=False)
    return _with(wished, answer=answer, beside=None)


@dataclass(frozen=True)
class PauseQuery(_OfAnswer):
    """Nothing is computed any more."""

    event = Event.PAUSE

    def made(self, one: StoredObject, query: StoredQuery) -> StoredObject:
        return _answering(ended(one), Phase.PAUSED)


@dataclass(frozen=True)
class SilenceQuery(_OfAnswer):
    """It is computed, and emits nothing."""

    event = Event.PAUSE_WITH_STATE

    def made(self, one: StoredObject, query: StoredQuery) -> StoredObject:
        return _answering(one, Phase.SILENT)


@dataclass(frozen=True)
class ResumeQuery(_OfAnswer):
    """It answers again: a silent one goes on, any other begins as a new computation. reset: of `StoredQuery`."""

    id: int
    start: Start
    reset: bool

    event = Event.RESUME

    def made(self, one: StoredObject, query: StoredQuery) -> StoredObject:
        if query.phase is Phase.SILENT:
            resumed = _answering(one, Phase.ANSWERING)
        else:
            resumed = _answering(_with(ended(one), reset=self.reset), Phase.ANSWERING, id=self.id, start=self.start)
        return _with(resumed, code="", message="")


@dataclass(frozen=True)
class ReplaceAnswer(_OfAnswer):
    """It computes something else, or answers elsewhere. One that is paused stays so.

    Args:
        declared: what it is to be, with the query as before.
        id, place: of the computation that answers then.
        sink, start, reset, columns: of the query then.
    """

    declared: StoredObject
    id: int
    place: int
    sink: SinkSpec
    start: Start
    reset: bool
    columns: str

    event = Event.REPLACE

    def made(self, one: StoredObject, query: StoredQuery) -> StoredObject:
        is_paused = query.phase in (Phase.PAUSED, Phase.SILENT)
        answer = replace(
            query.answer,
            place=self.place,
            start=self.start,
            plan=self.declared.wished_plan,
            # What the former one waited for may be what this one begins with.
            keeps=query.keeps and not is_paused,
            id=query.answer.id if is_paused else self.id,
            phase=Phase.PAUSED if is_paused else Phase.ANSWERING,
        )
        into = query.into or self.sink != query.sink
        changed = _with(
            self.declared, sink=self.sink, into=into, answer=answer, beside=None, reset=self.reset, columns=self.columns
        )
        return changed if is_paused else _with(changed, code="", message="")


@dataclass(frozen=True)
class MoveQuery(ReplaceAnswer):
    """It answers elsewhere."""

    event = Event.MOVE


@dataclass(frozen=True)
class ReplaceWhenReady(QueryChange):
    """Another query is computed beside it, whose place that takes when nothing is missing.

    Args:
        declared: what it is to be, with the query as before.
        id, place: of the computation beside it.
    """

    declared: StoredObject
    id: int
    place: int

    event = Event.REPLACE_WAIT

    def made(self, one: StoredObject, query: StoredQuery) -> StoredObject:
        wished = self.declared
        beside = StoredComputation(
            self.id, self.place, WARM_WAIT, Phase.SHADOW, wished.wished_plan, wished.definition, query.keeps
        )
        # What bears on the answer changes with it.
        former = self.declared.defined(one.definition, one.wished_plan)
        return _with(former, beside=beside, code="", message="")

    def concerns(self, query: StoredQuery) -> int | None:
        return self.place


@dataclass(frozen=True)
class SetPlan(QueryChange):
    """Its plan is to be the one that its attributes have; one that does not run has it when it begins.

    Args:
        attributes: of the query then.
        id, place: of a computation beside it.
    """

    attributes: Mapping[str, str]
    id: int
    place: int

    event = Event.SET_PLAN

    def made(self, one: StoredObject, query: StoredQuery) -> StoredObject:
        one = replace(one, attributes=self.attributes)
        wished, beside = one.wished_plan, query.beside
        if query.phase not in (Phase.ANSWERING, Phase.SILENT):
            return _with(one, answer=replace(query.answer, plan=wished), beside=None)
        if beside is not None and (beside.phase is Phase.ENDING or beside.plan == wished):
            # The change before it ends first.
            return one
        new = StoredComputation(self.id, self.place, WARM_WAIT, Phase.SHADOW, wished, keeps=query.keeps)
        return _with(one, beside=None if wished == query.answer.plan else new)

    def concerns(self, query: StoredQuery) -> int | None:
        return self.place if query.at(self.place) is not None else None


@dataclass(frozen=True)
class PlanBegins(SetPlan):
    """Its plan is not the one that its attributes have."""

    event = Event.PLAN_BEGINS


@dataclass(frozen=True)
class ChangeAttributes(QueryChange):
    """It has other attributes, none of which bears on its plan."""

    attributes: Mapping[str, str]

    event = Event.SET

    def made(self, one: StoredObject, query: StoredQuery) -> StoredObject:
        return replace(one, attributes=self.attributes)


@dataclass(frozen=True)
class SetBounds(QueryChange):
    """More or less of its result is kept. sink: of the query then."""

    sink: SinkSpec

    event = Event.SET

    def made(self, one: StoredObject, query: StoredQuery) -> StoredObject:
        return _with(one, sink=self.sink, into=True)


@dataclass(frozen=True)
class RenameQuery(QueryChange):
    name: str

    event = Event.RENAME

    def made(self, one: StoredObject, query: StoredQuery) -> StoredObject:
        return replace(one, name=self.name)


@dataclass(frozen=True)
class SwapQuery(_OfAnswer):
    """It answers what another one answers, whose computation goes on at its place. other: as it is before."""

    other: StoredObject

    event = Event.SWAP

    def made(self, one: StoredObject, query: StoredQuery) -> StoredObject:
        other = query_of(self.other).answer
        beside = query.beside if query.beside is not None and query.beside.phase is Phase.ENDING else None
        if beside is not None and beside.definition is None:
            # It goes on with what has been declared so far.
            beside = replace(beside, definition=one.definition)
        changed = one.defined(self.other.definition, self.other.wished_plan)
        return _with(changed, answer=replace(other, place=query.place), beside=beside)


@dataclass(frozen=True)
class RowsCame(QueryChange):
    """What waits at a place for rows begins.

    Args:
        tick: the first instant at which everything is there.
        id: of the computation that begins.
    """

    place: int
    tick: int
    id: int

    event = Event.ROWS_CAME

    def made(self, one: StoredObject, query: StoredQuery) -> StoredObject:
        waiting = query.waiting
        if waiting is None or waiting.place != self.place:
            return one
        begun = replace(waiting, id=self.id, start=replace(waiting.start, at=self.tick))
        if waiting is query.answer:
            return _with(one, answer=replace(begun, phase=Phase.ANSWERING))
        return _with(one, beside=replace(begun, phase=Phase.SHADOW))

    def concerns(self, query: StoredQuery) -> int | None:
        return self.place


@dataclass(frozen=True)
class RowsCameBeside(RowsCame):
    """What waits for rows beside it begins."""

    event = Event.ROWS_CAME_BESIDE


@dataclass(frozen=True)
class KeepsNoMore(QueryChange):
    """What had waited for rows has begun: its streams need not keep more than their RETAIN."""

    event = Event.KEEPS_NO_MORE

    def made(self, one: StoredObject, query: StoredQuery) -> StoredObject:
        return _with_each(one, lambda each: each if each.waits else replace(each, keeps=False))


@dataclass(frozen=True)
class TakesOver(_OfAnswer):
    """What is computed beside it answers, and the former one until a tick. until: that tick."""

    until: int

    event = Event.TAKES_OVER

    def made(self, one: StoredObject, query: StoredQuery) -> StoredObject:
        coming, former = query.beside, query.answer
        assert coming is not None, "something is computed beside it"
        ending = replace(former, place=coming.place, phase=Phase.ENDING, keeps=False, until=self.until)
        answer = replace(coming, place=former.place, phase=Phase.ANSWERING, keeps=False, definition=None)
        if coming.definition is None:
            return _with(one, answer=replace(answer, start=former.start), beside=ending)
        ending = replace(ending, definition=one.definition)
        # Its instant, where it had one, is reached.
        answer = replace(answer, start=WARM_WAIT)
        changed = one.defined(coming.definition, coming.plan)
        return _with(changed, answer=answer, beside=ending, code="", message="")


@dataclass(frozen=True)
class FormerEnded(QueryChange):
    """The former one has emitted all that is its."""

    event = Event.FORMER_ENDED

    def made(self, one: StoredObject, query: StoredQuery) -> StoredObject:
        return _with(one, beside=None)


@dataclass(frozen=True)
class _ByError(QueryChange):
    """A change by an error. code, message: of the error."""

    code: str
    message: str


@dataclass(frozen=True)
class QueryFailed(_ByError):
    """It has ended by an error."""

    event = Event.FAILED

    def made(self, one: StoredObject, query: StoredQuery) -> StoredObject:
        message = self.message if query.coming is None else f"before another query took its place: {self.message}"
        return _with(_answering(ended(one), Phase.FAILED), code=self.code, message=message)


@dataclass(frozen=True)
class BesideFailed(_ByError):
    """It goes on as it is: what is computed beside it has failed."""

    event = Event.BESIDE_FAILED

    def made(self, one: StoredObject, query: StoredQuery) -> StoredObject:
        # The plan is that which answers.
        attributes = without_no_choices({**one.attributes, "plan": query.answer.plan})
        left = _with(replace(one, attributes=attributes), beside=None)
        if query.coming is None:
            return left
        return _with(left, code=self.code, message=f"the query that was to take its place failed: {self.message}")


@dataclass(frozen=True)
class CannotGoOn(_ByError):
    """It cannot be bound, or a start fails with it."""

    event = Event.CANNOT_GO_ON

    def made(self, one: StoredObject, query: StoredQuery) -> StoredObject:
        return _with(_answering(ended(one), Phase.NEEDS_ATTENTION), code=self.code, message=self.message)


@dataclass(frozen=True)
class CanGoOn(QueryChange):
    """It can be bound again. message: what a user is to do."""

    message: str

    event = Event.CAN_GO_ON

    def made(self, one: StoredObject, query: StoredQuery) -> StoredObject:
        return _with(one, code="P0701", message=self.message)


def with_waiting(one: StoredObject, ids: Collection[int]) -> StoredObject:
    """Return a declared query of which computations wait for rows before they begin. ids: of these."""
    return _with_each(one, lambda each: each.waiting() if each.id in ids else each)
