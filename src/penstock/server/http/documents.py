"""The JSON documents of requests and answers, as the OpenAPI page describes them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr

from penstock.server.http.problems import error_document
from penstock.server.service import (
    CatalogView,
    CommandView,
    EntityView,
    HealthView,
    QueryView,
    SourceView,
    StatementView,
)

Text = Annotated[str, Field(max_length=10_000_000)]


class Document(BaseModel):
    """A JSON object without unknown members."""

    model_config = ConfigDict(extra="forbid")


class StatementBody(Document):
    """A script to execute."""

    sql: Text = Field(description="The statements, with semicolons between them.")
    settings: dict[str, str] = Field(default_factory=dict, description="Settings of the session, as SET has them.")
    wait: bool = Field(True, description="Whether to wait until commands have taken effect.")
    dry: bool = Field(False, description="Only check the script.")


class CatalogBody(BaseModel):
    """All declarations: the document of GET, of which only `sql` is read; the other members are derived from it."""

    sql: Text = Field(description="CREATE statements, with SET, and ALTER of streams and relations, between them.")
    settings: dict[str, str] = Field(default_factory=dict, description="Settings of the session, as SET has them.")
    wait: bool = Field(True, description="Whether to wait until the changes have taken effect.")


class QueryPatch(Document):
    """Changes of a query, which take effect together."""

    state: Literal["PAUSED", "RUNNING"] | None = Field(None, description="Pause or resume the query.")
    with_state: bool = Field(False, description="A paused query keeps its state up to date.")
    start: Literal["NOW", "WARM", "WARM WAIT", "BEGINNING"] | None = Field(
        None, description="From where a resumed query answers."
    )
    start_at: str | None = Field(None, max_length=100, description="The instant from which a resumed query answers.")
    reset: bool = Field(False, description="Start with the whole content where the net change is not known any more.")
    attributes: dict[str, str] = Field(default_factory=dict, description="Attributes to set.")
    name: str | None = Field(None, min_length=1, max_length=1_000, description="The new name.")
    sql: Text | None = Field(None, description="The new SELECT of the query.")
    wait: bool = Field(True, description="Whether to wait until the changes have taken effect.")


class EntityPatch(Document):
    """Attributes to set, all of them or none; null takes one away that can be taken away."""

    attributes: dict[str, str | None] = Field(default_factory=dict, description="Values as texts, by name.")
    wait: bool = Field(True, description="Whether to wait until they are set.")


class AttributeDocument(Document):
    """An attribute of an entity; its value as text."""

    name: str
    value: str | None
    type: str
    unit: str
    settable: bool
    default: str | None
    help: str


class EntityDocument(Document):
    """An entity: whatever works or holds something."""

    id: str
    kind: str
    name: str
    relation: str = Field(description="The control relation that lists it.")
    queries: list[str] = Field(description="The queries that it belongs to.")
    attributes: list[AttributeDocument] = Field(default_factory=list)


class EntitiesDocument(Document):
    """Entities without their attributes."""

    entities: list[EntityDocument]


class PositionDocument(Document):
    """A place in the script: line and column from 1, the text of the line and the length of the marked word."""

    line: int
    column: int
    length: int
    text: str


class ErrorDocument(BaseModel):
    """One error."""

    code: str
    message: str
    hint: str | None = None
    position: PositionDocument | None = None


class Problem(ErrorDocument):
    """An error as RFC 9457 has it, with all errors of the request."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[ErrorDocument]


class ColumnDocument(Document):
    name: str
    type: str


class PastDocument(Document):
    """What is read of a source when a query begins."""

    source: str
    from_: str = Field(alias="from")
    rows: int | None
    bytes: int


class StartDocument(Document):
    """A way to begin a query. warm_after: how long after NOW it answers as WARM does; since: for which instant WARM
    WAIT waits; awaits: for how many rows of which streams."""

    start: str
    possible: bool
    obstacles: list[str]
    reads: list[PastDocument]
    warm_after: str | None
    since: str | None = None
    awaits: str | None = None


class CheckDocument(Document):
    """A query that was not registered: its plan, the state that it will keep, the rows a second that its operators
    process, how it could begin, and, of the first 20 statements of a script, what it would share with the queries that
    run."""

    query: str
    plan: str
    state: dict[str, Any]
    rows_per_second: float
    starts: list[StartDocument]
    sharing: dict[str, Any] | None = None


class NoticeDocument(BaseModel):
    message: str
    hint: str | None = None


class StatementDocument(BaseModel):
    """What one statement led to."""

    kind: str
    state: str
    number: int | None = None
    version: int | None = None
    instant: str | None = None
    position: str | None = Field(None, description="Of an INSERT, UPDATE or DELETE, for the header Penstock-After.")
    staleness: float | None = None
    since: dict[str, str] | None = None
    text: str | None = None
    sql: str | None = Field(None, description="Of a change of the catalog: the statement itself.")
    columns: list[ColumnDocument] | None = None
    rows: list[dict[str, Any]] | None = None
    notices: list[NoticeDocument] = Field(default_factory=list, description="What is to be known of the rows.")
    error: ErrorDocument | None = None
    check: CheckDocument | None = None


class WarningDocument(BaseModel):
    message: str
    hint: str | None = None
    position: PositionDocument | None = None


class ScriptDocument(BaseModel):
    statements: list[StatementDocument]
    warnings: list[WarningDocument]


class RunningDocument(BaseModel):
    """A one-time query or a subscription that runs."""

    id: str
    kind: str
    began: str
    who: str
    sql: str


class RunningListDocument(BaseModel):
    statements: list[RunningDocument]


class QueryDocument(BaseModel):
    name: str
    id: str
    state: str
    kind: Literal["stream", "relation"]
    sql: str
    columns: list[ColumnDocument]
    sink: str
    instant: str | None
    rows: int | None
    attributes: dict[str, str]
    error: ErrorDocument | None
    share: float | None = None
    first: str | None = None
    change: str | None = None
    selected: list[ColumnDocument] = Field(default_factory=list, description="The columns that a SELECT reads.")


class QueriesDocument(BaseModel):
    queries: list[QueryDocument]


class SourceDocument(BaseModel):
    name: str
    kind: Literal["stream", "relation"]
    connector: str
    columns: list[ColumnDocument]
    sql: str
    heartbeat: str | None


class ViewDocument(BaseModel):
    name: str
    sql: str
    columns: list[ColumnDocument]


class UnboundDocument(BaseModel):
    """A declaration other than a query that this version cannot bind."""

    kind: str
    name: str
    sql: str
    state: Literal["NEEDS ATTENTION"] = "NEEDS ATTENTION"
    error: ErrorDocument


class CatalogDocument(BaseModel):
    sources: list[SourceDocument]
    views: list[ViewDocument]
    queries: list[QueryDocument]
    functions: list[str]
    sql: str
    unbound: list[UnboundDocument] = Field(
        default_factory=list, description="Declarations that this version cannot bind, queries aside, with the reason."
    )


class CommandDocument(BaseModel):
    number: int
    at: str
    who: str
    sql: str
    state: str
    version: int | None
    error: ErrorDocument | None
    share: float | None = None


class CommandsDocument(BaseModel):
    commands: list[CommandDocument]


class RejectedRecord(BaseModel):
    """A malformed record. line: from 1; None where all of the body is malformed."""

    line: int | None
    record: str
    reason: str


class PostedDocument(BaseModel):
    """Rows that are durable now. malformed: number of records that are not among them; rejected: the first of these;
    late: number of rows that are late for sure; complete_to: the instant up to which the source was complete, by which
    that is known. What has not been read yet of the source may make more rows late."""

    rows: int
    repeated: bool
    malformed: int
    rejected: list[RejectedRecord]
    late: int
    complete_to: str | None
    position: str | None = Field(None, description="For the header Penstock-After.")
    notices: list[NoticeDocument] = Field(default_factory=list, description="What is to be known of the rows.")


class HeartbeatBody(Document):
    """A heartbeat of a stream: no element with this timestamp or an earlier one follows. ts: in ISO form, or of a
    stream that is stamped by integers one of these."""

    ts: StrictInt | StrictStr


class HeartbeatDocument(BaseModel):
    """A heartbeat that is durable now. complete_to: the instant up to which the stream was complete before it."""

    ts: str
    repeated: bool
    complete_to: str | None
    position: str | None = Field(None, description="For the header Penstock-After.")
    notices: list[NoticeDocument] = Field(default_factory=list, description="Whether it has an effect.")


class PunctuationBody(Document):
    """A punctuation of a stream: no element that fulfils it follows. where: a conjunction of comparisons of columns
    with constants, as in `auction = 17 AND bid <= 5`."""

    where: StrictStr = Field(max_length=1_000_000)


class PunctuationDocument(BaseModel):
    """A punctuation that is durable now. where: as it is understood."""

    where: str
    repeated: bool
    position: str | None = Field(None, description="For the header Penstock-After.")
    notices: list[NoticeDocument] = Field(default_factory=list, description="Whether it has an effect.")


class SessionDocument(BaseModel):
    """Who makes a request. needs_token: whether the server requires one."""

    name: str
    role: str
    needs_token: bool


class WordsDocument(BaseModel):
    """Words of the language. functions: those that a query may call without a declaration."""

    keywords: list[str]
    functions: list[str]


class HealthDocument(BaseModel):
    status: Literal["ok", "unavailable"]
    problem: str | None = None
    version: int | None = None
    batch: int | None = None


def _columns(columns: tuple[tuple[str, str], ...]) -> list[ColumnDocument]:
    return [ColumnDocument(name=name, type=type_) for name, type_ in columns]


def _error(error: Any) -> ErrorDocument | None:
    return None if error is None else ErrorDocument(**error_document(error))


def query_document(view: QueryView) -> QueryDocument:
    return QueryDocument(
        name=view.name,
        id=view.id,
        state=view.state,
        kind="stream" if view.is_stream else "relation",
        sql=view.sql,
        columns=_columns(view.columns),
        sink=view.sink,
        instant=view.instant,
        rows=view.rows,
        attributes=dict(view.attributes),
        error=_error(view.error),
        share=view.share,
        first=view.first,
        change=view.change,
        selected=_columns(view.selected),
    )


def running_document(view: StatementView) -> RunningDocument:
    return RunningDocument(id=view.id, kind=view.kind, began=view.began, who=view.who, sql=view.text)


def source_document(view: SourceView) -> SourceDocument:
    return SourceDocument(
        name=view.name,
        kind="stream" if view.is_stream else "relation",
        connector=view.connector,
        columns=_columns(view.columns),
        sql=view.sql,
        heartbeat=view.heartbeat,
    )


def catalog_document(view: CatalogView) -> CatalogDocument:
    return CatalogDocument(
        sources=[source_document(one) for one in view.sources],
        views=[ViewDocument(name=one.name, sql=one.sql, columns=_columns(one.columns)) for one in view.views],
        queries=[query_document(one) for one in view.queries],
        functions=list(view.functions),
        sql=view.sql,
        unbound=[
            UnboundDocument(kind=one.kind, name=one.name, sql=one.sql, error=ErrorDocument(**error_document(one.error)))
            for one in view.unbound
        ],
    )


def command_document(view: CommandView) -> CommandDocument:
    return CommandDocument(
        number=view.number,
        at=view.at,
        who=view.who,
        sql=view.sql,
        state=view.state,
        version=view.version,
        error=_error(view.error),
        share=view.share,
    )


def health_document(view: HealthView, ready: bool) -> HealthDocument:
    fine = view.ready if ready else view.alive
    return HealthDocument(
        status="ok" if fine else "unavailable",
        problem=None if fine else view.problem,
        version=view.version,
        batch=view.batch,
    )


def entity_document(view: EntityView) -> EntityDocument:
    """Return the document of an entity."""
    attributes = [AttributeDocument(**asdict(one)) for one in view.attributes]
    return EntityDocument(
        id=view.id,
        kind=view.kind,
        name=view.name,
        relation=view.relation,
        queries=list(view.queries),
        attributes=attributes,
    )
