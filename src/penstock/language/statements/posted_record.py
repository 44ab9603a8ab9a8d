"""What statements have in common that put a record that is no row among the rows of a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar, Protocol

from penstock.algebra import Source
from penstock.errors import PenstockError
from penstock.language.binder.context import Context
from penstock.language.binder.statements.names import source_named
from penstock.language.catalog import Catalog
from penstock.language.queries import Name
from penstock.language.text import TextSpan


class _PostedRecord(Protocol):
    KIND: ClassVar[str]

    @property
    def name(self) -> Name: ...


def stream_that_takes(name: Name, refusal: Callable[[Source], PenstockError | None], context: Context) -> Source:
    """Return the stream of a record. Raises BindingFailed after P0201 and the error of `refusal`."""
    known = context.catalog.sources.get(name.key)
    source = known if known is not None and name.matches(known.name) else source_named(name, "STREAM", context)
    if (error := refusal(source)) is not None:
        context.fail(error.code, error.message, name.span, error.hint)
    return source


def of_a_server(statement: _PostedRecord, live: bool, catalog: Catalog) -> Iterator[tuple[str, TextSpan]]:
    """Yield what needs a server: a script knows the place of a record among rows that it INSERTs alone."""
    source = catalog.sources.get(statement.name.key)
    if source is not None and source.connector != "MEMORY":
        yield f"{statement.KIND} of a stream FROM {source.connector}", statement.name.span
