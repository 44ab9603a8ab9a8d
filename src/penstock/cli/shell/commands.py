"""The commands of the shell, and what \\d shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from penstock.errors import PenstockError, nearest
from penstock.redaction import redacted_text
from penstock.types import Schema, type_name

if TYPE_CHECKING:
    from penstock.session import Session


class Commanded(Protocol):
    """What the commands act on."""

    def describe(self, name: str) -> None: ...

    def watch(self, arguments: str) -> None: ...

    def include(self, path: str) -> None: ...

    def set_format(self, name: str) -> None: ...

    def help(self) -> None: ...

    def quit(self) -> None: ...


@dataclass(frozen=True)
class Command:
    """A command of the shell. usage: how it is written; what: what it does; run: given the shell and what follows the
    word."""

    usage: str
    what: str
    run: Callable[[Commanded, str], None]


COMMANDS: dict[str, Command] = {
    "\\d": Command(
        "\\d [name]", "what is declared, or the columns and the text of one of it", lambda s, t: s.describe(t)
    ),
    "\\watch": Command(
        "\\watch [n [times]]", "repeat the last SELECT every n seconds, until Ctrl-C", lambda s, t: s.watch(t)
    ),
    "\\i": Command("\\i file", "execute a file of statements and commands", lambda s, t: s.include(t)),
    "\\format": Command("\\format [name]", "how rows are written: table, csv or json", lambda s, t: s.set_format(t)),
    "\\?": Command("\\?", "this list", lambda s, t: s.help()),
    "\\q": Command("\\q", "quit (also Ctrl-D)", lambda s, t: s.quit()),
}


def command_table(session: Session, name: str) -> tuple[str, pa.Table, str]:
    """Return what \\d shows: a title, a table, and the statement below it. Raises PenstockError P0201."""
    catalog = session.catalog
    if not name:
        kinds = [(s.name, "stream" if s.is_stream else "relation", s.connector) for s in catalog.sources.values()]
        kinds += [(v.name, "view", "") for v in catalog.views.values()]
        kinds += [(q.name, "query", q.sink.connector) for q in catalog.queries.values()]
        names, kinds_shown, connectors = zip(*kinds, strict=True) if kinds else ((), (), ())
        columns = {"name": names, "kind": kinds_shown, "connector": connectors}
        return "", pa.table({title: pa.array(list(cells), pa.string()) for title, cells in columns.items()}), ""
    key = name.removeprefix("`").removesuffix("`").replace("``", "`").lower()
    if (source := catalog.sources.get(key)) is not None:
        kind = "stream" if source.is_stream else "relation"
        text = redacted_text(catalog.texts.get(key, ""))
        return f"{kind} {source.name}", _columns(source.columns), text
    if (view := catalog.views.get(key)) is not None:
        view_columns = list(zip(view.names, view.root.schema.types, strict=True))
        return f"view {view.name}", _columns_table(view_columns), redacted_text(view.text)
    if (query := catalog.queries.get(key)) is not None:
        return f"query {query.name}", _columns(query.root.schema), redacted_text(query.text)
    declared_names = [s.name for s in catalog.sources.values()] + [v.name for v in catalog.views.values()]
    declared_names += [q.name for q in catalog.queries.values()]
    raise PenstockError("P0201", f"unknown stream, relation, view or query {name}", hint=nearest(name, declared_names))


def _columns(schema: Schema) -> pa.Table:
    return _columns_table(list(zip(schema.names, schema.types, strict=True)))


def _columns_table(columns: list[tuple[str, pa.DataType]]) -> pa.Table:
    names = pa.array([name for name, _ in columns], pa.string())
    return pa.table({"column": names, "type": pa.array([type_name(kind) for _, kind in columns], pa.string())})
