"""`penstock query`: one-time queries over the sources of a script, in this process."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import typer

from penstock.cli.shared.answers import rows_answer, table_text, warnings_of
from penstock.cli.shared.scripts import read_script
from penstock.connectors.sinks.output import Output, OutputFormat, output
from penstock.connectors.sinks.tabular import encodable, shown
from penstock.errors import PenstockError
from penstock.runtime.local.one_time import OneTimeAnswer
from penstock.session import Session

#: What a text of statements begins with, as no name of a file does.
_STATEMENT = re.compile(
    r"\s*(?:\(|--|/\*|(?:select|with|values|istream|dstream|rstream|wstream|create|insert|set|explain|show|drop|alter"
    r"|update|delete|describe|subscribe|cancel|begin)(?=[\s(*;-]))",
    re.IGNORECASE,
)
#: A text without a statement, as an empty variable of a shell leaves it.
_NOTHING = re.compile(r"[\s;]*")


def is_statement(argument: str) -> bool:
    """Return whether an argument of the command line is a text of statements, not the name of a script."""
    return _STATEMENT.match(argument) is not None


def check_something(argument: str) -> None:
    """Raise PenstockError P0101 for a text that holds nothing to answer."""
    if _NOTHING.fullmatch(argument):
        hint = "penstock query 'SELECT ...', or penstock query script.cql 'SELECT ...'"
        raise PenstockError("P0101", "the query is empty", hint=hint)


def read_query(argument: str) -> tuple[str, str]:
    """Return the text of the script `argument` and its name. Raises PenstockError P0401."""
    try:
        return read_script(Path(argument))
    except PenstockError as error:
        if not isinstance(error.cause, OSError) or isinstance(error.cause, IsADirectoryError | PermissionError):
            raise
        hint = "what begins with no statement, such as SELECT, is taken for the name of a script"
        raise PenstockError(error.code, error.message, hint=hint, cause=error.cause) from None


def answer(session: Session, text: str, name: str | None, form: OutputFormat) -> None:
    """Answer the statements of `text`, and write the answers to standard output.

    Raises:
        PenstockError: an error of the statements or their sources; P0101 for a text without anything to answer.
    """
    answers = session.execute(text, file=name, one_time=True).answers
    for warning in session.warnings:
        typer.echo(warning.render(), err=True)
    if not answers:
        hint = "penstock query script.cql 'SELECT ...' answers a query over the script's sources"
        raise PenstockError("P0101", f"{name or 'the text'} holds no SELECT", hint=hint)
    _write(answers, form)


def _write(answers: Sequence[str | OneTimeAnswer], form: OutputFormat) -> None:
    tables = [result for result in answers if not isinstance(result, str)]
    console = output(form, [result.query for result in tables], one_time=True)
    for result in answers:
        if isinstance(result, str):
            # Standard output has only rows where a program may read them.
            to_standard_error = bool(tables) and form is not OutputFormat.TABLE
            text = shown(result if result.endswith("\n") else f"{result}\n")
            typer.echo(text, nl=False, err=to_standard_error)
            continue
        for line in warnings_of(result):
            typer.echo(line, err=True)
        if form is OutputFormat.TABLE:
            for part in table_text(rows_answer(result, result.query.text)):
                sys.stdout.write(encodable(part, sys.stdout))
        else:
            write_or_stop(console, partial(console.write, result.query, [result.table], None))
    write_or_stop(console, console.close)
    sys.stdout.flush()


def write_or_stop(console: Output, write: Callable[[], None]) -> None:
    """Write to standard output. Raises BrokenPipeError where its reader has closed it, PenstockError P0502."""
    try:
        write()
    except PenstockError as error:
        if console.gone:
            raise BrokenPipeError from error
        raise
