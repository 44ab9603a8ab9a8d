"""Where the shell has its statements executed: in this process, or at a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import pyarrow as pa

from penstock.cli.shared.answers import Answer, FollowAnswer, Remark, RowsAnswer, TextAnswer, rows_answer
from penstock.cli.shell.declared import Declared, declared_of, quoted
from penstock.server_reports import ShownEntries
from penstock.session import Session


class FollowedRows(Iterator[pa.RecordBatch], Protocol):
    """The results of a query as they come: `ts`, `op`, and its columns."""

    def close(self) -> None: ...


class ShellSide(Protocol):
    """Executes the statements of a shell."""

    def execute(self, text: str, name: str | None) -> Iterator[Answer]:
        """Execute statements, and yield their answers as they come.

        Args:
            text: what stands before the statements in their file is blank, so that positions are those of the file.
            name: of the file, for messages.

        Raises:
            PenstockError: of a statement, while the answers are taken.
        """

    def declared(self, fresh: bool = False) -> Declared:
        """Return what is declared. fresh: as it is now; otherwise what was known shortly before will do, and nothing is
        raised. Raises PenstockError."""

    def is_relation(self, query: str) -> bool:
        """Return whether the results of a query are changes of a relation. Raises PenstockError P0201."""

    def follow(self, answer: FollowAnswer, patient: bool, on_lost: Callable[[Exception], None]) -> FollowedRows:
        """Return the results of a query.

        Args:
            patient: whether a lost server is tried again without end.
            on_lost: is called with the reason each time before.
        """

    def interruption(self) -> str:
        """Return the message for a statement that a person has interrupted."""

    def end(self) -> None:
        """Raise PenstockError for what has been begun and not been finished."""


class SessionSide:
    """See the contract `ShellSide`: statements are executed in this process, over inputs that end."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def execute(self, text: str, name: str | None) -> Iterator[Answer]:
        execution = self._session.execute(text, file=name, one_time=True)
        yield from (Remark(warning.render()) for warning in self._session.warnings)
        for answer in execution.answers:
            if isinstance(answer, ShownEntries):
                yield RowsAnswer(answer.table, "", None)
            elif isinstance(answer, str):
                yield TextAnswer(answer)
            else:
                yield rows_answer(answer, text.strip() if len(execution.answers) == 1 else answer.query.text)
        for query in execution.queries:
            name = quoted(query)
            yield Remark(f"{name} is declared: SELECT * FROM {name} shows its answer", confirms=True)

    def declared(self, fresh: bool = False) -> Declared:
        return declared_of(self._session.catalog)

    def is_relation(self, query: str) -> bool:
        raise AssertionError("a session has nothing to follow")

    def follow(self, answer: FollowAnswer, patient: bool, on_lost: Callable[[Exception], None]) -> FollowedRows:
        raise AssertionError("a session has nothing to follow")

    def interruption(self) -> str:
        return "cancelled"

    def end(self) -> None:
        """A session leaves nothing open."""
