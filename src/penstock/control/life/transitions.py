"""What an event makes of a declared query: a table, by its phase and by what is computed beside it.

Statements are refused by the table, and what it does not foresee does not happen. `docs/life.md` is printed from it:
`python -m penstock.control.life.page`.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from penstock.control.phases import OF_ANSWER, Beside, Phase
from penstock.control.stored_catalog import StoredObject, StoredQuery
from penstock.errors import PenstockError


class Event(enum.Enum):
    """What happens to a query: a statement, or what the system finds. The value is what the page calls it."""

    PAUSE = "`PAUSE`"
    PAUSE_WITH_STATE = "`PAUSE WITH STATE`"
    RESUME = "`RESUME`"
    REPLACE = "`AS`, `CREATE OR REPLACE`"
    REPLACE_WAIT = "`AS .. START WARM WAIT`"
    MOVE = "`INTO`"
    SET_PLAN = "`SET (plan ..)`"
    SET = "`SET` of anything else"
    RENAME = "`RENAME TO`"
    SWAP = "`SWAP WITH`, of either"
    DROP = "`DROP QUERY`"
    PLAN_BEGINS = "its plan is not the one that it is to have"
    ROWS_CAME = "the rows have come that it waits for"
    ROWS_CAME_BESIDE = "the rows have come that the coming one waits for"
    TAKES_OVER = "the coming one has all that it needs"
    FORMER_ENDED = "the former one has emitted all that is its"
    FAILED = "it fails"
    BESIDE_FAILED = "what is computed beside it fails"
    CANNOT_GO_ON = "it cannot be bound, or a start fails with it"
    CAN_GO_ON = "it can be bound again"
    KEEPS_NO_MORE = "what has waited for rows has begun with them"


#: What users do.
STATEMENTS = frozenset(
    {
        Event.PAUSE,
        Event.PAUSE_WITH_STATE,
        Event.RESUME,
        Event.REPLACE,
        Event.REPLACE_WAIT,
        Event.MOVE,
        Event.SET_PLAN,
        Event.SET,
        Event.RENAME,
        Event.SWAP,
        Event.DROP,
    }
)
#: After these the answer is another one, also where nothing is computed.
ANEW = frozenset({Event.REPLACE, Event.MOVE})


class Refusal(enum.Enum):
    """Why a statement is refused, with P0701: the message, and the hint."""

    STATE = "query {name} is {status}, and cannot be {verb}", None
    NOT_BEGUN = (
        "query {name} waits for rows before it begins, and cannot be {verb}",
        "PAUSE it, or wait until it has begun; SHOW QUERIES has how many rows are missing",
    )
    CHANGING = (
        "another query is to take the place of {name}",
        "wait until it has, or end that by ALTER QUERY .. AS with what the query is now",
    )
    NOT_ENDED = (
        "the change of query {name} before this one has not ended",
        "it ends with the next instant; post it again then, or begin the query at once, START WARM",
    )


@dataclass(frozen=True)
class Becomes:
    """It happens.

    Args:
        phases: in which the query is then, one of them; none where it is gone.
        beside: what is computed beside it then, one of them; None: what was.
    """

    phases: frozenset[Phase]
    beside: frozenset[Beside] | None


class Nothing(enum.Enum):
    """Nothing happens."""

    NOTHING = "nothing"


Verdict = Becomes | Refusal | Nothing
NOTHING = Nothing.NOTHING
#: What can be computed beside a query in a phase.
POSSIBLE = dict.fromkeys(OF_ANSWER, (Beside.NOTHING,)) | {Phase.ANSWERING: tuple(Beside), Phase.SILENT: tuple(Beside)}
#: What a statement that is refused would have done.
_VERBS = {
    Event.PAUSE: "paused",
    Event.PAUSE_WITH_STATE: "paused with its state",
    Event.RESUME: "resumed",
    Event.SWAP: "exchanged",
}


def _becomes(*phases: Phase, beside: Collection[Beside] | None = (Beside.NOTHING,)) -> Becomes:
    return Becomes(frozenset(phases), None if beside is None else frozenset(beside))


WAITING, ANSWERING, SILENT, PAUSED, FAILED, ATTENTION = OF_ANSWER
_ENDED = (PAUSED, FAILED, ATTENTION)
_CHANGES = (Beside.PLAN, Beside.QUERY)
#: A computation begins anew, with the rows that have come or when they have.
_BEGINS = _becomes(ANSWERING, WAITING)


@dataclass(frozen=True)
class Transition:
    """A part of the table. beside: for what is computed beside it."""

    event: Event
    phases: tuple[Phase, ...]
    beside: tuple[Beside, ...]
    verdict: Verdict | None


def _rules(event: Event, *lines: tuple[tuple[Phase, ...], tuple[Beside, ...], Verdict | None]) -> Iterator[Transition]:
    yield from (Transition(event, phases, beside, verdict) for phases, beside, verdict in lines)


_ANY = tuple(Beside)
#: It stays as it is.
_SAME = None
#: The first that fits counts.
RULES: tuple[Transition, ...] = (
    *_rules(
        Event.PAUSE,
        ((ANSWERING, WAITING), _ANY, _becomes(PAUSED)),
        (OF_ANSWER, _ANY, Refusal.STATE),
    ),
    *_rules(
        Event.PAUSE_WITH_STATE,
        ((ANSWERING,), _ANY, _becomes(SILENT, beside=None)),
        ((WAITING,), _ANY, Refusal.NOT_BEGUN),
        (OF_ANSWER, _ANY, Refusal.STATE),
    ),
    *_rules(
        Event.RESUME,
        ((SILENT,), _ANY, _becomes(ANSWERING, beside=None)),
        (_ENDED, _ANY, _BEGINS),
        (OF_ANSWER, _ANY, Refusal.STATE),
    ),
    *_rules(
        Event.REPLACE,
        ((PAUSED, SILENT), _ANY, _becomes(PAUSED)),
        (OF_ANSWER, _ANY, _BEGINS),
    ),
    *_rules(
        Event.REPLACE_WAIT,
        ((ANSWERING,), (Beside.FORMER,), Refusal.NOT_ENDED),
        ((ANSWERING,), _ANY, _becomes(ANSWERING, beside=(Beside.QUERY,))),
        ((PAUSED, SILENT), _ANY, _becomes(PAUSED)),
        (OF_ANSWER, _ANY, _BEGINS),
    ),
    *_rules(
        Event.MOVE,
        (OF_ANSWER, (Beside.QUERY,), Refusal.CHANGING),
        ((PAUSED, SILENT), _ANY, _becomes(PAUSED)),
        (OF_ANSWER, _ANY, _BEGINS),
    ),
    *_rules(
        Event.SET_PLAN,
        (OF_ANSWER, (Beside.QUERY,), Refusal.CHANGING),
        ((ANSWERING,), (Beside.FORMER,), _SAME),
        ((SILENT,), (Beside.FORMER,), _SAME),
        ((ANSWERING,), _ANY, _becomes(ANSWERING, beside=(Beside.PLAN, Beside.NOTHING))),
        ((SILENT,), _ANY, _becomes(SILENT, beside=(Beside.PLAN, Beside.NOTHING))),
        (OF_ANSWER, _ANY, _SAME),
    ),
    *_rules(Event.SET, (OF_ANSWER, _ANY, _SAME)),
    *_rules(Event.RENAME, (OF_ANSWER, _ANY, _SAME)),
    *_rules(
        Event.SWAP,
        ((WAITING,), _ANY, Refusal.NOT_BEGUN),
        ((ANSWERING,), (Beside.QUERY,), Refusal.CHANGING),
        ((ANSWERING,), (Beside.PLAN,), _becomes(ANSWERING)),
        ((ANSWERING,), _ANY, _SAME),
        (OF_ANSWER, _ANY, Refusal.STATE),
    ),
    *_rules(Event.DROP, (OF_ANSWER, _ANY, _becomes())),
    *_rules(
        Event.PLAN_BEGINS,
        ((ANSWERING,), (Beside.NOTHING,), _becomes(ANSWERING, beside=(Beside.PLAN,))),
        (OF_ANSWER, _ANY, NOTHING),
    ),
    *_rules(
        Event.ROWS_CAME,
        ((WAITING,), _ANY, _becomes(ANSWERING)),
        (OF_ANSWER, _ANY, NOTHING),
    ),
    *_rules(
        Event.ROWS_CAME_BESIDE,
        ((ANSWERING, SILENT), _CHANGES, _SAME),
        (OF_ANSWER, _ANY, NOTHING),
    ),
    *_rules(
        Event.TAKES_OVER,
        ((ANSWERING,), _CHANGES, _becomes(ANSWERING, beside=(Beside.FORMER,))),
        (OF_ANSWER, _ANY, NOTHING),
    ),
    *_rules(
        Event.FORMER_ENDED,
        ((ANSWERING,), (Beside.FORMER,), _becomes(ANSWERING)),
        (OF_ANSWER, _ANY, NOTHING),
    ),
    *_rules(
        Event.FAILED,
        ((FAILED,), _ANY, NOTHING),
        (OF_ANSWER, _ANY, _becomes(FAILED)),
    ),
    *_rules(
        Event.BESIDE_FAILED,
        ((ANSWERING,), (*_CHANGES, Beside.FORMER), _becomes(ANSWERING)),
        ((SILENT,), (*_CHANGES, Beside.FORMER), _becomes(SILENT)),
        (OF_ANSWER, _ANY, NOTHING),
    ),
    *_rules(Event.CANNOT_GO_ON, (OF_ANSWER, _ANY, _becomes(ATTENTION))),
    *_rules(
        Event.CAN_GO_ON,
        ((ATTENTION,), _ANY, _SAME),
        (OF_ANSWER, _ANY, NOTHING),
    ),
    *_rules(
        Event.KEEPS_NO_MORE,
        ((ANSWERING, SILENT), _ANY, _SAME),
        (OF_ANSWER, _ANY, NOTHING),
    ),
)


def verdict(event: Event, phase: Phase, beside: Beside) -> Verdict:
    """Return what an event makes of a query in a phase, beside which something is computed."""
    for rule in RULES:
        if rule.event is event and phase in rule.phases and beside in rule.beside:
            return _becomes(phase, beside=None) if rule.verdict is _SAME else rule.verdict
    raise KeyError(event, phase, beside)


def beside_of(query: StoredQuery) -> Beside:
    """Return what is computed beside the answer of a query."""
    beside = query.beside
    if beside is None:
        return Beside.NOTHING
    if beside.phase is Phase.ENDING:
        return Beside.FORMER
    return Beside.PLAN if beside.definition is None else Beside.QUERY


def verdict_on(one: StoredObject, event: Event) -> Verdict:
    """Return what an event makes of a declared query."""
    assert one.query is not None, "it is a query"
    return verdict(event, one.query.phase, beside_of(one.query))


def happens(one: StoredObject, event: Event) -> bool:
    """Return whether what the system finds changes a query."""
    return isinstance(verdict_on(one, event), Becomes)


def check(one: StoredObject, event: Event) -> None:
    """Raise PenstockError P0701 where a statement is refused in the phase of a query."""
    found = verdict_on(one, event)
    if isinstance(found, Refusal):
        assert one.query is not None, "it is a query"
        message, hint = found.value
        words = {"name": one.name, "status": one.query.status.value, "verb": _VERBS.get(event, "")}
        raise PenstockError("P0701", message.format(**words), hint=hint)
