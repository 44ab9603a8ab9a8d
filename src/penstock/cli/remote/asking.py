"""`penstock query --connect`: statements that a server executes, for scripts."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import typer

from penstock.cli.shared.answers import Answer, FollowAnswer, Remark, RowsAnswer, TextAnswer, table_text
from penstock.cli.shared.connecting import connected_to
from penstock.cli.shared.options import ServerPlace
from penstock.cli.shared.querying import write_or_stop
from penstock.cli.shell.server_side import ServerSide
from penstock.client import SelectedBatches
from penstock.connectors.sinks.output import Output, OutputFormat, output
from penstock.connectors.sinks.tabular import encodable, shown
from penstock.language.quotes import is_blank, statement_end
from penstock.language.text import SourceText, TextSpan


@dataclass(frozen=True)
class NamedRows:
    """Rows for standard output: the name and the columns of their query."""

    name: str
    output_schema: pa.Schema

    @property
    def output_names(self) -> tuple[str, ...]:
        return tuple(self.output_schema.names)


def answer_at_server(
    place: ServerPlace, texts: Sequence[tuple[str, str | None]], form: OutputFormat, settings: dict[str, str]
) -> None:
    """Have a server execute statements one after the other, and write their answers to standard output.

    Args:
        texts: of statements, each with the name of its file.
        settings: of the session, as written.

    Raises:
        PenstockError: of the first statement that fails; those before it have been executed.
    """
    with connected_to(place) as client:
        side = ServerSide(client, settings)
        statements = [(one, name) for text, name in texts for one in _statements(text)]
        found = _answers(side, statements)
        if len(statements) == 1 and form is not OutputFormat.TABLE:
            only = side.execute_as_it_comes(*statements[0])
            if isinstance(only, SelectedBatches):
                _stream(only, form)
                return
            found = only
        answers: list[RowsAnswer | TextAnswer] = []
        try:
            for answer in found:
                if isinstance(answer, Remark):
                    typer.echo(shown(answer.text), err=True)
                elif isinstance(answer, FollowAnswer):
                    _write(answers, form)
                    answers = []
                    _follow(side, answer, form)
                else:
                    answers.append(answer)
            side.end()
        finally:
            _write(answers, form)


def _answers(side: ServerSide, statements: Sequence[tuple[str, str | None]]) -> Iterator[Answer]:
    for statement, name in statements:
        yield from side.execute(statement, name)


def _stream(selected: SelectedBatches, form: OutputFormat) -> None:
    """Write the rows of the only SELECT as they come; no more than a batch is held."""
    for notice in selected.notices:
        typer.echo(shown(f"notice: {notice}"), err=True)
    with selected:
        query = NamedRows("query_1", selected.schema)
        console = output(form, [query], one_time=True)
        for batch in selected:
            _put(console, query, pa.Table.from_batches([batch]))
        write_or_stop(console, console.close)
        sys.stdout.flush()


def _statements(text: str) -> Iterator[str]:
    """Yield the statements of a text, each with as many lines and columns before it as it has there."""
    source, start = SourceText(text), 0
    while start < len(text):
        end = statement_end(text, start) or len(text)
        if not is_blank(text[start:end]):
            yield source.blank_before(TextSpan(start, end)) + text[start:end]
        start = end


def _write(answers: Sequence[RowsAnswer | TextAnswer], form: OutputFormat) -> None:
    """Write answers; standard output has only rows where a program may read them."""
    tables = [answer for answer in answers if isinstance(answer, RowsAnswer)]
    named = {id(one): NamedRows(f"query_{number}", one.table.schema) for number, one in enumerate(tables, 1)}
    console = output(form, list(named.values()), one_time=True)
    for answer in answers:
        if isinstance(answer, TextAnswer):
            text = shown(answer.text if answer.text.endswith("\n") or not answer.text else f"{answer.text}\n")
            typer.echo(text, nl=False, err=bool(tables) and form is not OutputFormat.TABLE)
        elif form is OutputFormat.TABLE:
            for part in table_text(answer):
                sys.stdout.write(encodable(part, sys.stdout))
        else:
            _put(console, named[id(answer)], answer.table)
    write_or_stop(console, console.close)
    sys.stdout.flush()


def _follow(side: ServerSide, answer: FollowAnswer, form: OutputFormat) -> None:
    """Write results as they come, until the reader of standard output leaves or the process is ended."""

    def lost(reason: Exception) -> None:
        typer.echo(shown(f"the server is lost, and tried again: {reason}"), err=True)

    rows = side.follow(answer, False, lost)
    console = None
    try:
        for batch in rows:
            query = NamedRows(answer.query, batch.schema)
            console = console or output(form, [query], one_time=True)
            _put(console, query, pa.Table.from_batches([batch]))
        if console is not None:
            write_or_stop(console, console.close)
            sys.stdout.flush()
    finally:
        rows.close()


def _put(console: Output, query: NamedRows, table: pa.Table) -> None:
    write_or_stop(console, lambda: console.write(query, [table], None))
