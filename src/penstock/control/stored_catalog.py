"""The catalog of a server as data: what was declared, under which number, and what each query does.

Nothing here is bound: a declaration is kept as the text that made it, with the settings that bore on it, so that a
later version of the program can read it. A number is never used again, and stands for the declaration in the names of
files; the name is only shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from penstock.algebra.nodes.query import SinkSpec, Start, StartMode
from penstock.language.binder.statements.attributes import SHEDDING_ATTRIBUTES
from penstock.language.catalog import QueryStatus
from penstock.language.plans.choices import NO_CHOICES, without_no_choices
from penstock.storage.documents import (
    Document,
    Json,
    array,
    as_document,
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
class OtherQuery:
    """A query that is computed beside one of the same name.

    Args:
        text: as written.
        settings: those that differ from their defaults where it was written.
        budget: its attributes that are part of its answer.
    """

    text: str
    settings: Mapping[str, str] = field(default_factory=dict)
    budget: Mapping[str, str] = field(default_factory=dict)

    def document(self) -> Document:
        return {"text": self.text, "settings": dict(self.settings), "budget": dict(self.budget)}

    @staticmethod
    def read(document: Document) -> OtherQuery:
        return OtherQuery(text(document, "text"), _texts(document, "settings"), _texts(document, "budget"))


@dataclass(frozen=True)
class QueryEdit:
    """A change of a query while it runs: the same query by another plan, or another query, at a place of its own.

    Until it is mature it answers where nobody reads, and the former one where all do. Then both exchange their places.
    What has arrived of the instant after that is answered by the former one, which ends behind it.

    Args:
        place: of the answers that nobody reads.
        track: the computation that answers there: the coming one, after the exchange the former one.
        plan: the choices of its plan.
        until: after the exchange, the tick at which the former one ends; None before.
        other: the query that is computed there, None where it is the same one.
        holds: its streams keep all that comes, as those of a `StoredQuery` that waits for rows; nothing is computed
            there until `at` has the instant at which they were there.
    """

    place: int
    track: int
    plan: str
    until: int | None = None
    other: OtherQuery | None = None
    holds: bool = False
    at: int | None = None

    @property
    def awaits(self) -> bool:
        """Return whether it waits for rows to come before anything is computed."""
        return self.holds and self.at is None

    def document(self) -> Document:
        return {
            "place": self.place, "track": self.track, "plan": self.plan, "until": self.until,
            **({} if self.other is None else {"other": self.other.document()}),
            **({"holds": True, "at": self.at} if self.holds else {}),
        }  # fmt: skip

    @staticmethod
    def read(document: Document) -> QueryEdit:
        until = optional_integer(document, "until")
        other = OtherQuery.read(nested(document, "other")) if "other" in document else None
        at = optional_integer(document, "at") if "at" in document else None
        return QueryEdit(
            integer(document, "place"), integer(document, "track"), text(document, "plan"), until, other,
            "holds" in document, at,
        )  # fmt: skip

    @property
    def name(self) -> str:
        """Return under which name a catalog has it: programs that know no such change go on without it."""
        return "waiting" if self.awaits else "edit" if self.other is None else "replacement"


@dataclass(frozen=True)
class StoredQuery:
    """What is kept of a query beside its text.

    Args:
        sink: where its answer is written.
        into: whether the sink was named.
        start: where its answer began, or begins.
        status: what it does.
        place: the number of the place of its answers.
        track: the number of the computation that answers it; a new number begins anew.
        silent: it is paused, and its state is kept up to date.
        reset: its answers may begin again where the content emitted last is not known.
        code, message: of the error that it failed with.
        plan: the choices of the plan of its track, as text; what is wished is the attribute of that name.
        edit: a change that is not through yet.
        holds: its streams keep all that comes, whatever their RETAIN, until it has begun with that: it waits for their
            last rows (START WARM WAIT), until `start` has the instant at which they were there.
        columns: those of its result and the unit of its time, as text; empty where an earlier program did not note
            them. They say what may take its place where it cannot be bound.
    """

    sink: SinkSpec
    into: bool
    start: Start
    status: QueryStatus
    place: int
    track: int
    silent: bool = False
    reset: bool = False
    code: str = ""
    message: str = ""
    plan: str = NO_CHOICES
    edit: QueryEdit | None = None
    holds: bool = False
    columns: str = ""

    @property
    def awaits(self) -> bool:
        """Return whether it waits for rows to come before it begins."""
        return self.holds and self.start.at is None and self.status is QueryStatus.RUNNING

    @property
    def waits_at(self) -> int | None:
        """Return the place at which it, or a change of it, waits for rows; None where neither does."""
        edit = self.edit if self.edit is not None and self.edit.awaits else None
        return self.place if self.awaits else None if edit is None else edit.place

    @property
    def plans(self) -> list[tuple[int, str]]:
        """Return the places at which it is computed, with the choices of the plan there: that of its answers, and of a
        change that does not wait for rows."""
        edit = self.edit
        return [(self.place, self.plan), *([] if edit is None or edit.awaits else [(edit.place, edit.plan)])]

    @property
    def tracks(self) -> list[int]:
        """Return its computations: that which answers, and that of a change."""
        return [self.track, *([] if self.edit is None else [self.edit.track])]

    @property
    def coming(self) -> OtherQuery | None:
        """Return the query that is to take its place."""
        return None if self.edit is None or self.edit.until is not None else self.edit.other

    def document(self) -> Document:
        return {
            "connector": self.sink.connector, "options": [list(pair) for pair in self.sink.options],
            "into": self.into, "start": self.start.mode.value, "at": self.start.at, "wait": self.start.wait,
            "status": self.status.value, "place": self.place, "track": self.track, "silent": self.silent,
            "reset": self.reset,
            "code": self.code, "message": self.message, "plan": self.plan,
            "edit": None, "replacement": None, **({"holds": True} if self.holds else {}),
            **({"columns": self.columns} if self.columns else {}),
            **({} if self.edit is None else {self.edit.name: self.edit.document()}),
        }  # fmt: skip

    @staticmethod
    def read(document: Document) -> StoredQuery:
        options = tuple((as_text(pair[0], "options"), as_text(pair[1], "options")) for pair in _pairs(document))
        start = Start(StartMode(text(document, "start")), optional_integer(document, "at"), flag(document, "wait"))
        return StoredQuery(
            SinkSpec(text(document, "connector"), options), flag(document, "into"), start,
            QueryStatus(text(document, "status")), integer(document, "place"), integer(document, "track"),
            flag(document, "silent"), flag(document, "reset"), text(document, "code"), text(document, "message"),
            # Catalogs of earlier versions have no choices and no replacements.
            text(document, "plan") if "plan" in document else NO_CHOICES,
            _edit(document, "edit") or _edit(document, "replacement") or _edit(document, "waiting"),
            "holds" in document,
            text(document, "columns") if "columns" in document else "",
        )  # fmt: skip


def _edit(document: Document, name: str) -> QueryEdit | None:
    found = document.get(name)
    return None if found is None else QueryEdit.read(as_document(found, name))


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
    """

    id: int
    kind: str
    name: str
    text: str
    settings: Mapping[str, str] = field(default_factory=dict)
    attributes: Mapping[str, str] = field(default_factory=dict)
    query: StoredQuery | None = None

    @property
    def wished_plan(self) -> str:
        """Return the choices that its plan is to have."""
        return self.attributes.get("plan", NO_CHOICES)

    @property
    def wished_text(self) -> str:
        """Return what it is to compute: the text of a query that is to take its place, where there is one."""
        coming = None if self.query is None else self.query.coming
        return self.text if coming is None else coming.text

    @property
    def as_wished(self) -> StoredObject:
        """Return it as the query that is to take its place, where there is one; nothing is computed beside it then."""
        query, coming = self.query, None if self.query is None else self.query.coming
        if query is None or query.edit is None or coming is None:
            return self
        attributes = {key: value for key, value in self.attributes.items() if key not in self.budget}
        attributes = without_no_choices({**attributes, **coming.budget, "plan": query.edit.plan})
        query = replace(query, edit=None, plan=query.edit.plan)
        return replace(self, text=coming.text, settings=coming.settings, attributes=attributes, query=query)

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
            "id": self.id, "kind": self.kind, "name": self.name, "text": self.text, "settings": dict(self.settings),
            "attributes": dict(self.attributes), "query": None if self.query is None else self.query.document(),
        }  # fmt: skip

    @staticmethod
    def read(document: Document) -> StoredObject:
        query = document["query"]
        return StoredObject(
            integer(document, "id"), text(document, "kind"), text(document, "name"), text(document, "text"),
            _texts(document, "settings"), _texts(document, "attributes"),
            None if query is None else StoredQuery.read(as_document(query, "query")),
        )  # fmt: skip


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
            "objects": [one.document() for one in self.objects], "removed": list(self.removed),
            "settings": dict(self.settings), "next_id": self.next_id,
            "rows": [{"number": r.number, "source": r.source, "text": r.text} for r in self.rows],
            "concerns": [list(pair) for pair in self.concerns.items()],
        }  # fmt: skip

    @staticmethod
    def read(document: Document) -> CatalogChange:
        rows = (as_document(row, "rows") for row in array(document, "rows"))
        return CatalogChange(
            _objects(document), tuple(integers(document, "removed")), _texts(document, "settings"),
            tuple(RowStatement(integer(r, "number"), integer(r, "source"), text(r, "text")) for r in rows),
            integer(document, "next_id"), dict(integer_pairs(document, "concerns")),
        )  # fmt: skip


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
            "objects": [one.document() for one in self.objects.values()], "settings": dict(self.settings),
            "next_id": self.next_id,
        }  # fmt: skip

    @staticmethod
    def read(document: Document) -> StoredCatalog:
        objects = {one.id: one for one in _objects(document)}
        return StoredCatalog(objects, _texts(document, "settings"), integer(document, "next_id"))
