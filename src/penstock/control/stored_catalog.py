"""The catalog of a server as data: what was declared, under which number, and what each query does.

Nothing here is bound: a declaration is kept as the text that made it, with the settings that bore on it, so that a
later version of the program can read it. A number is never used again, and stands for the declaration in the names of
files; the name is only shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from penstock.algebra.nodes.query import SinkSpec, Start, StartMode
from penstock.control.phases import Phase
from penstock.language.binder.statements.attributes import SHEDDING_ATTRIBUTES
from penstock.language.catalog import QueryStatus
from penstock.language.plan_choices import NO_CHOICES, without_no_choices
from penstock.storage.documents import (
    Document,
    Json,
    array,
    as_array,
    as_document,
    as_integer,
    as_text,
    flag,
    integer,
    integer_pairs,
    integers,
    nested,
    optional_integer,
    text,
)

#: What no two declarations share: FUNCTION or an empty text, and the name in lower case. Functions have names of their
#: own.
ObjectKey = tuple[str, str]
#: What queries that end with a subscription are called, and the comment that they have.
TEMPORARY_PREFIX, TEMPORARY_COMMENT = "subscription ", "ends with its subscription"


@dataclass(frozen=True)
class Definition:
    """What a query computes.

    Args:
        text: as written.
        settings: those that differ from their defaults where it was written.
        budget: its attributes that are part of its answer.
        since: the first number that was free when it was registered: promises that were added or dropped under a later
            one do not concern it.
    """

    text: str
    settings: Mapping[str, str] = field(default_factory=dict)
    budget: Mapping[str, str] = field(default_factory=dict)
    since: int = 0

    def document(self) -> Document:
        settings, budget = dict(self.settings), dict(self.budget)
        return {"text": self.text, "settings": settings, "budget": budget, "since": self.since}

    @staticmethod
    def read(document: Document) -> Definition:
        found = text(document, "text"), _texts(document, "settings"), _texts(document, "budget")
        return Definition(*found, integer(document, "since"))


@dataclass(frozen=True)
class StoredComputation:
    """A computation of a declared query.

    Args:
        id: a new number begins anew.
        place: the number of the place of its answers.
        start: where they began, or begin.
        plan: the choices of its plan, as text.
        definition: what it computes, where that is not what is declared: the query that is to take its place, or that
            had it before.
        keeps: its streams keep all that comes, whatever their RETAIN: it waits for their last rows (START WARM WAIT),
            has begun with them just now, or takes the place of one that did.
        until: of one that is ENDING, the tick at which it does.
    """

    id: int
    place: int
    start: Start
    phase: Phase
    plan: str = NO_CHOICES
    definition: Definition | None = None
    keeps: bool = False
    until: int | None = None

    @property
    def waits(self) -> bool:
        """Return whether it waits for rows to come before anything is computed."""
        return self.phase is Phase.WAITING_FOR_ROWS

    @property
    def may_wait(self) -> bool:
        """Return whether it is to begin when nothing is missing, and knows of nothing that is."""
        begins = self.phase in (Phase.ANSWERING, Phase.SHADOW)
        return begins and self.start.wait and self.start.at is None

    def waiting(self) -> StoredComputation:
        """Return it as one that waits for rows."""
        return replace(self, phase=Phase.WAITING_FOR_ROWS, keeps=True)

    def document(self) -> Document:
        return {
            "id": self.id,
            "place": self.place,
            "start": self.start.mode.value,
            "at": self.start.at,
            "wait": self.start.wait,
            "phase": self.phase.name,
            "plan": self.plan,
            "keeps": self.keeps,
            "until": self.until,
            "definition": None if self.definition is None else self.definition.document(),
        }

    @staticmethod
    def read(document: Document) -> StoredComputation:
        start = Start(StartMode(text(document, "start")), optional_integer(document, "at"), flag(document, "wait"))
        definition = document["definition"]
        return StoredComputation(
            integer(document, "id"),
            integer(document, "place"),
            start,
            Phase[text(document, "phase")],
            text(document, "plan"),
            None if definition is None else Definition.read(as_document(definition, "definition")),
            flag(document, "keeps"),
            optional_integer(document, "until"),
        )


@dataclass(frozen=True)
class StoredQuery:
    """What is kept of a query beside its text.

    Args:
        sink: where its answer is written.
        into: whether the sink was named.
        answer: the computation that answers, or is to.
        beside: a second one while the query changes: by another plan or of another query, at a place without readers.
            When nothing is missing both exchange their places; what has arrived of the instant after that is answered
            by the former one, which ends behind it.
        reset: its answers may begin again where the content emitted last is not known.
        code, message: of the error that it, or a change of it, failed with.
        columns: those of its result and the unit of its time, as text. They decide what may take its place where it
            cannot be bound.
    """

    sink: SinkSpec
    into: bool
    answer: StoredComputation
    beside: StoredComputation | None = None
    reset: bool = False
    code: str = ""
    message: str = ""
    columns: str = ""

    @property
    def phase(self) -> Phase:
        """Return what its answer does."""
        return self.answer.phase

    @property
    def status(self) -> QueryStatus:
        """Return the same as users see it."""
        return self.phase.status

    @property
    def place(self) -> int:
        """Return the number of the place of its answers."""
        return self.answer.place

    @property
    def computations(self) -> list[StoredComputation]:
        """Return the computation that answers, and that beside it."""
        return [self.answer, *([] if self.beside is None else [self.beside])]

    @property
    def computed(self) -> list[StoredComputation]:
        """Return those that an engine knows: the computation that answers, and one beside it that waits for no rows."""
        return [each for each in self.computations if each is self.answer or not each.waits]

    @property
    def keeps(self) -> bool:
        """Return whether a computation has its streams keep all that comes."""
        return any(each.keeps for each in self.computations)

    @property
    def waiting(self) -> StoredComputation | None:
        """Return the computation that waits for rows."""
        return next((each for each in self.computations if each.waits), None)

    @property
    def coming(self) -> Definition | None:
        """Return what is to take its place, where that is another query."""
        return None if self.beside is None or self.beside.phase is Phase.ENDING else self.beside.definition

    def at(self, place: int) -> StoredComputation | None:
        """Return the computation with a place."""
        return next((each for each in self.computations if each.place == place), None)

    def document(self) -> Document:
        return {
            "connector": self.sink.connector,
            "options": [list(pair) for pair in self.sink.options],
            "into": self.into,
            "answer": self.answer.document(),
            "beside": None if self.beside is None else self.beside.document(),
            "reset": self.reset,
            "code": self.code,
            "message": self.message,
            "columns": self.columns,
        }

    @staticmethod
    def read(document: Document) -> StoredQuery:
        options = tuple((as_text(pair[0], "options"), as_text(pair[1], "options")) for pair in _pairs(document))
        beside = document["beside"]
        return StoredQuery(
            SinkSpec(text(document, "connector"), options),
            flag(document, "into"),
            StoredComputation.read(nested(document, "answer")),
            None if beside is None else StoredComputation.read(as_document(beside, "beside")),
            flag(document, "reset"),
            text(document, "code"),
            text(document, "message"),
            text(document, "columns"),
        )


def _pairs(document: Document) -> Iterator[list[Json]]:
    for pair in array(document, "options"):
        assert isinstance(pair, list), "an option is a pair"
        yield pair


@dataclass(frozen=True)
class StoredObject:
    """A declaration.

    Args:
        kind: STREAM, RELATION, VIEW, SUMMARY, QUERY, FUNCTION or AGGREGATE.
        text: the statement that declares it; of a query the query alone.
        settings: those that differ from their defaults where it was declared, as written.
        attributes: set by ALTER or WITH, by name.
        query: of a QUERY.
        since: of a query, as of its `Definition`.
        promises: of a stream, the statements that have added and dropped constraints, in order, each with its number.
        checks: of a stream, its constraints that are CHECKED, each with the number of the computation that checks it.
    """

    id: int
    kind: str
    name: str
    text: str
    settings: Mapping[str, str] = field(default_factory=dict)
    attributes: Mapping[str, str] = field(default_factory=dict)
    query: StoredQuery | None = None
    since: int = 0
    promises: tuple[tuple[int, str], ...] = ()
    checks: tuple[tuple[int, str], ...] = ()

    @property
    def wished_plan(self) -> str:
        """Return the choices that its plan is to have."""
        return self.attributes.get("plan", NO_CHOICES)

    @property
    def definition(self) -> Definition:
        """Return what a query computes that answers."""
        return Definition(self.text, self.settings, self.budget, self.since)

    @property
    def as_wished(self) -> StoredObject:
        """Return it as the query that is to take its place, where there is one; nothing is computed beside it then."""
        query, coming = self.query, None if self.query is None else self.query.coming
        if query is None or query.beside is None or coming is None:
            return self
        plan = query.beside.plan
        query = replace(query, beside=None, answer=replace(query.answer, plan=plan))
        return replace(self.defined(coming, plan), query=query)

    def defined(self, definition: Definition, plan: str) -> StoredObject:
        """Return a query that computes something else. plan: the choices that its plan is to have."""
        attributes = {key: value for key, value in self.attributes.items() if key not in self.budget}
        attributes = without_no_choices({**attributes, **definition.budget, "plan": plan})
        since = definition.since
        return replace(self, text=definition.text, settings=definition.settings, attributes=attributes, since=since)

    @property
    def budget(self) -> dict[str, str]:
        """Return the attributes that are part of a query's answer."""
        return {key: value for key, value in self.attributes.items() if key in SHEDDING_ATTRIBUTES.names}

    @property
    def is_temporary(self) -> bool:
        """Return whether it is a query that ends with its subscription."""
        is_named = self.name.startswith(TEMPORARY_PREFIX)
        return self.query is not None and is_named and self.attributes.get("comment") == TEMPORARY_COMMENT

    @property
    def key(self) -> ObjectKey:
        """Return what no two declarations share."""
        return ("FUNCTION" if self.kind in ("FUNCTION", "AGGREGATE") else "", self.name.lower())

    def document(self) -> Document:
        return {
            "id": self.id,
            "kind": self.kind,
            "name": self.name,
            "text": self.text,
            "settings": dict(self.settings),
            "attributes": dict(self.attributes),
            "query": None if self.query is None else self.query.document(),
            "since": self.since,
            "promises": [list(pair) for pair in self.promises],
            "checks": [list(pair) for pair in self.checks],
        }

    @staticmethod
    def read(document: Document) -> StoredObject:
        query = document["query"]
        return StoredObject(
            integer(document, "id"),
            text(document, "kind"),
            text(document, "name"),
            text(document, "text"),
            _texts(document, "settings"),
            _texts(document, "attributes"),
            None if query is None else StoredQuery.read(as_document(query, "query")),
            integer(document, "since"),
            _numbered(document, "promises"),
            _numbered(document, "checks"),
        )


def _numbered(document: Document, name: str) -> tuple[tuple[int, str], ...]:
    pairs = (as_array(pair, name) for pair in array(document, name))
    return tuple((as_integer(number, name), as_text(one, name)) for number, one in pairs)


def _texts(document: Document, name: str) -> dict[str, str]:
    return {key: as_text(value, key) for key, value in nested(document, name).items()}


@dataclass(frozen=True)
class RowStatement:
    """An INSERT, UPDATE or DELETE of a transaction. number: of its command; source: the number of what it changes."""

    number: int
    source: int
    text: str


@dataclass(frozen=True)
class CatalogChange:
    """What the commands of a transaction change: all of it happens, or nothing.

    Args:
        objects: new declarations, and changed ones as they are then.
        removed: numbers of those that are dropped.
        settings: of the whole system, as written.
        rows: statements that change rows, in order.
        next_id: the first number that is still free.
        concerns: by number of a command, the place whose answers it is about.
    """

    objects: tuple[StoredObject, ...] = ()
    removed: tuple[int, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    rows: tuple[RowStatement, ...] = ()
    next_id: int = 1
    concerns: Mapping[int, int] = field(default_factory=dict)

    def document(self) -> Document:
        return {
            "objects": [one.document() for one in self.objects],
            "removed": list(self.removed),
            "settings": dict(self.settings),
            "next_id": self.next_id,
            "rows": [{"number": r.number, "source": r.source, "text": r.text} for r in self.rows],
            "concerns": [list(pair) for pair in self.concerns.items()],
        }

    @staticmethod
    def read(document: Document) -> CatalogChange:
        rows = (as_document(row, "rows") for row in array(document, "rows"))
        return CatalogChange(
            _objects(document),
            tuple(integers(document, "removed")),
            _texts(document, "settings"),
            tuple(RowStatement(integer(r, "number"), integer(r, "source"), text(r, "text")) for r in rows),
            integer(document, "next_id"),
            dict(integer_pairs(document, "concerns")),
        )


def _objects(document: Document) -> tuple[StoredObject, ...]:
    return tuple(StoredObject.read(as_document(one, "objects")) for one in array(document, "objects"))


@dataclass(frozen=True)
class StoredCatalog:
    """All declarations by number, in the order in which they were made.

    Args:
        settings: of the whole system, as written.
        next_id: the first number that is still free.
    """

    objects: Mapping[int, StoredObject] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    next_id: int = 1

    def changed(self, change: CatalogChange) -> StoredCatalog:
        """Return the catalog after a transaction."""
        kept = dict(self.objects)
        for number in change.removed:
            kept.pop(number, None)
        kept |= {one.id: one for one in change.objects}
        return StoredCatalog(kept, {**self.settings, **change.settings}, max(self.next_id, change.next_id))

    def named(self, name: str, kind: str = "") -> StoredObject | None:
        """Return the declaration of a name. kind: FUNCTION for functions and aggregates."""
        lower = name.lower()
        # The names are compared first: that is the cheapest where there are many.
        same = (one for one in self.objects.values() if one.name.lower() == lower)
        return next((one for one in same if one.key == (kind, lower)), None)

    @property
    def queries(self) -> Iterator[tuple[StoredObject, StoredQuery]]:
        """Yield the queries."""
        return ((one, one.query) for one in self.objects.values() if one.query is not None)

    def document(self) -> Document:
        return {
            "objects": [one.document() for one in self.objects.values()],
            "settings": dict(self.settings),
            "next_id": self.next_id,
        }

    @staticmethod
    def read(document: Document) -> StoredCatalog:
        objects = {one.id: one for one in _objects(document)}
        return StoredCatalog(objects, _texts(document, "settings"), integer(document, "next_id"))
