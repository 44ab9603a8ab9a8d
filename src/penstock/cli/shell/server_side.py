"""The shell of a server: statements are posted to it one by one, transactions as a whole."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from penstock.cli.shared.answers import Answer, FollowAnswer, Remark, RowsAnswer, TextAnswer
from penstock.cli.shell.declared import Declared, DeclaredObject, declared_by_name
from penstock.cli.shell.sides import FollowedRows
from penstock.client import CatalogView, RemoteStatement, SelectedBatches, ServerClient
from penstock.errors import PenstockError, Position, ScriptErrors
from penstock.language.scripts.parse import parse_script
from penstock.language.statements import (
    OneTimeSelect,
    SetSetting,
    Statement,
    SubscribeStatement,
    TransactionStatement,
)

#: Seconds for which the completion uses what it knows of the server's declarations.
_KNOWN_SECONDS = 2.0
#: Seconds for which a lost server is tried again where no person waits.
_PATIENCE = 60.0
#: States of commands that have been accepted and have no effect yet; they are reported to programs too.
_WAITING = frozenset({"PENDING", "HYDRATING"})


class ServerSide:
    """See the contract `ShellSide`. settings: of the session, as SET has them; SET adds to them."""

    def __init__(self, client: ServerClient, settings: dict[str, str] | None = None) -> None:
        self._client = client
        self._settings = dict(settings or {})
        #: The statements of a transaction that has begun; empty without one.
        self._transaction = ""
        self._declared = Declared()
        self._looked = -math.inf

    # -- statements --------------------------------------------------------------------------------------------

    def execute(self, text: str, name: str | None) -> Iterator[Answer]:
        yield from self._answers(text, _statements(text), name)

    def execute_as_it_comes(self, text: str, name: str | None) -> SelectedBatches | Iterator[Answer]:
        """Execute a text as `execute` does; return the rows of one that is one SELECT as they come."""
        match statements := _statements(text):
            case (OneTimeSelect(),) if not self._transaction:
                lines = len(text) - len(text.lstrip("\n"))
                try:
                    return self._client.select_batches(text[lines:], settings=self._settings)
                except PenstockError as error:
                    raise placed(error, lines, name) from None
        return self._answers(text, statements, name)

    def _answers(self, text: str, statements: Sequence[Statement], name: str | None) -> Iterator[Answer]:
        words = [one.word for one in statements if isinstance(one, TransactionStatement)]
        if self._transaction or words[:1] == ["BEGIN"]:
            self._transaction = _joined(self._transaction, text)
            if words[-1:] not in (["COMMIT"], ["ROLLBACK"]):
                if words:
                    yield Remark("the transaction is executed as a whole with COMMIT", confirms=True)
                return
            text, self._transaction, statements = self._transaction, "", ()
        lines = len(text) - len(text.lstrip("\n"))
        try:
            yield from self._executed(text[lines:], statements, name, lines)
        except PenstockError as error:
            raise placed(error, lines, name) from None

    def _executed(self, text: str, statements: Sequence[Statement], name: str | None, lines: int) -> Iterator[Answer]:
        statement = statements[0] if len(statements) == 1 else None
        match statement:
            case SubscribeStatement(name=query, as_of=None, up_to=None) if query is not None:
                yield FollowAnswer(query.text, statement.snapshot is not None, statement.progress is not None)
            case SubscribeStatement():
                yield FollowAnswer("subscription", False, False, "\n" * lines + text)
            case OneTimeSelect():
                rows = self._client.select(text, settings=self._settings)
                yield from _noticed(rows.notices)
                yield RowsAnswer(rows.to_arrow(), text.strip(), rows.instant)
            case _:
                script = self._client.execute(text, settings=self._settings)
                self._looked = -math.inf
                for warning in script.warnings:
                    place = replace(warning.position, line=warning.position.line + lines, file=name)
                    yield Remark(replace(warning, position=place).render())
                for one in script:
                    # The settings of a session are posted with the statements behind them.
                    yield from _answers(replace(one, notices=()) if isinstance(statement, SetSetting) else one)
                if isinstance(statement, SetSetting):
                    self._settings[statement.name.text] = statement.value

    def interruption(self) -> str:
        return "cancelled; a command that was accepted is carried out all the same"

    def end(self) -> None:
        if self._transaction:
            self._transaction = ""
            message = "the transaction has no COMMIT, so nothing of it has been executed"
            raise PenstockError("P0732", message, hint="end it with COMMIT")

    # -- results -----------------------------------------------------------------------------------------------

    def is_relation(self, query: str) -> bool:
        return self._client.query(query).kind == "relation"

    def follow(self, answer: FollowAnswer, patient: bool, on_lost: Callable[[Exception], None]) -> FollowedRows:
        patience = math.inf if patient else _PATIENCE
        if answer.sql is not None:
            return self._client.follow(answer.sql, settings=self._settings, patience=patience, on_lost=on_lost)
        return self._client.subscribe(
            answer.query, snapshot=answer.snapshot, progress=answer.progress, patience=patience, on_lost=on_lost
        )

    # -- declarations ------------------------------------------------------------------------------------------

    def declared(self, fresh: bool = False) -> Declared:
        if fresh:
            self._look()
        elif time.monotonic() > self._looked + _KNOWN_SECONDS:
            try:
                self._look()
            except PenstockError:
                # A completion is not worth an error: the next statement fails with it.
                self._looked = time.monotonic()
        return self._declared

    def _look(self) -> None:
        self._declared = _declared_of(self._client.catalog())
        self._looked = time.monotonic()


def _declared_of(catalog: CatalogView) -> Declared:
    objects = [DeclaredObject(one.name, one.kind, one.connector, one.columns, one.sql) for one in catalog.sources]
    objects += [DeclaredObject(one.name, "view", "", one.columns, one.sql) for one in catalog.views]
    for query in catalog.queries:
        objects.append(DeclaredObject(query.name, "query", query.sink, query.selected, query.sql, query.state))
    return declared_by_name(objects, ((name, "function") for name in catalog.functions))


def _statements(text: str) -> tuple[Statement, ...]:
    """Return the statements of a text; none where this version cannot read it, since the server may."""
    try:
        return parse_script(text).statements
    except PenstockError:
        return ()


def _joined(before: str, text: str) -> str:
    """Return the text of a transaction with one more statement, in its line where that comes later."""
    if not before:
        return text
    rest, last = text.lstrip("\n"), before.rpartition("\n")[2]
    lines = len(text) - len(rest) - before.count("\n")
    if lines == 0 and rest.startswith(" " * len(last)):
        return before + rest[len(last) :]
    return before + "\n" * max(1, lines) + rest


def _answers(statement: RemoteStatement) -> Iterator[Answer]:
    """Yield what a statement has led to. Raises PenstockError for a command that has failed."""
    if statement.error is not None:
        raise statement.error
    yield from _noticed(statement.notices)
    if statement.rows is not None and statement.columns is not None:
        yield RowsAnswer(_table(statement), "", statement.instant)
    elif statement.text is not None:
        yield TextAnswer(statement.text)
    elif statement.number is not None:
        waits = statement.state in _WAITING
        yield Remark(f"{statement.kind}: {statement.state} (command {statement.number})", confirms=not waits)


def _noticed(notices: Sequence[str]) -> Iterator[Answer]:
    """Yield what is to be known of an answer."""
    for one in notices:
        yield Remark(f"notice: {one}")


def _table(statement: RemoteStatement) -> pa.Table:
    """Return the rows of a SELECT within a transaction, which come as JSON."""
    names = [name for name, _ in statement.columns or ()]
    columns = [[row[name] for row in statement.rows or ()] for name in names]
    return pa.table([_array(values) for values in columns], names=names)


def _array(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError):
        # Numbers that JSON has no place for are texts.
        return pa.array([None if value is None else str(value) for value in values], pa.string())


def placed(error: PenstockError, lines: int, name: str | None) -> PenstockError:
    """Return an error of a text at its place in a file that has so many lines before it."""
    if isinstance(error, ScriptErrors):
        return ScriptErrors([placed(one, lines, name) for one in error.errors])
    place = error.position
    if place is None:
        return error
    position = Position(place.line + lines, place.column, place.text, place.length, name)
    return PenstockError(error.code, error.message, position, error.hint, error.cause)
