"""What a server reports of its declarations and commands: the same values at its doors and in its client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.errors import PenstockError


@dataclass(frozen=True)
class QueryView:
    """A continuous query as it stands.

    Args:
        columns: (name, type) of its results.
        sink: the connector into which it writes.
        instant: up to which it has answered.
        rows: that it has emitted, None where they are not counted.
        error: that it failed with.
        share: of one that is HYDRATING, which part of its past has been read, where that is known.
        first: of one that is WAITING, the first instant that it answers.
        change: what takes its place, and when.
        selected: (name, type) of what a SELECT reads: of a stream `ts` and the items, of a relation the items.
    """

    name: str
    id: str
    state: str
    sql: str
    is_stream: bool
    columns: tuple[tuple[str, str], ...] = ()
    sink: str = ""
    instant: str | None = None
    rows: int | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    error: PenstockError | None = None
    share: float | None = None
    first: str | None = None
    change: str | None = None
    selected: tuple[tuple[str, str], ...] = ()

    @property
    def kind(self) -> str:
        """Return `stream` or `relation`."""
        return kind_of_rows(self.is_stream)


@dataclass(frozen=True)
class SourceView:
    """A declared stream or relation. columns: (name, type); heartbeat: as text; None where it is not known;
    primary_key: names of columns."""

    name: str
    is_stream: bool
    connector: str
    columns: tuple[tuple[str, str], ...] = ()
    sql: str = ""
    heartbeat: str | None = None
    primary_key: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """Return `stream` or `relation`."""
        return kind_of_rows(self.is_stream)


@dataclass(frozen=True)
class DeclaredView:
    """A declared view. columns: (name, type)."""

    name: str
    sql: str
    columns: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class CommandView:
    """A command of the log. at: when it was accepted, ISO-8601; version: of the plan, from which on it has effect;
    share: of one that is HYDRATING, which part of its past has been read, where that is known."""

    number: int
    at: str
    who: str
    sql: str
    state: str
    version: int | None = None
    error: PenstockError | None = None
    share: float | None = None


@dataclass(frozen=True)
class UnboundView:
    """A declaration other than a query that this version of the server cannot bind, with the reason."""

    kind: str
    name: str
    sql: str
    error: PenstockError


@dataclass(frozen=True)
class CatalogView:
    """All that is declared. functions: their names; sql: declares it again; unbound: what NEEDS ATTENTION, other than
    queries."""

    sources: tuple[SourceView, ...] = ()
    views: tuple[DeclaredView, ...] = ()
    queries: tuple[QueryView, ...] = ()
    functions: tuple[str, ...] = ()
    sql: str = ""
    unbound: tuple[UnboundView, ...] = ()


def kind_of_rows(is_stream: bool) -> str:
    """Return `stream` or `relation`."""
    return "stream" if is_stream else "relation"


# --- what SHOW lists: the same columns in a session as at a server

_DECLARED = ("name", "statement")
_RUNNING = ("id", "began", "who", "statement")
#: Columns by what is listed; of everything else a name, and the statement that declares it.
_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "QUERIES": ("name", "state", "kind", "result", "remark", "statement"),
    "STATEMENTS": _RUNNING,
    "SUBSCRIPTIONS": _RUNNING,
    "COMMANDS": ("number", "state", "who", "statement"),
    "VERSIONS": ("version", "commands"),
}


class ShownEntries(str):
    """What SHOW lists: a text with an entry a line. table: the same as a table."""

    table: pa.Table

    @staticmethod
    def of(text: str, table: pa.Table) -> ShownEntries:
        found = ShownEntries(text)
        found.table = table
        return found


def listed_table(kind: str, rows: Iterable[Sequence[str | None]]) -> pa.Table:
    """Return entries as a table of texts. kind: what SHOW lists, as `STREAMS`."""
    names = _COLUMNS.get(kind, _DECLARED)
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    return pa.table({name: pa.array(values, pa.string()) for name, values in zip(names, columns, strict=True)})
