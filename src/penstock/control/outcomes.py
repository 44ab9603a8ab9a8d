"""What became of a command: its state, and where the answer of a query began."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from penstock.errors import PenstockError, Position, ScriptWarning
from penstock.language.commands import Command
from penstock.storage.documents import Document, integer, optional_integer, text


@dataclass(frozen=True)
class Principal:
    """Who posts a command. name: of the token; role: `read`, `control` or `admin`."""

    name: str
    role: str = "admin"


#: Who the commands of the system itself come from.
SYSTEM = Principal("system")


class CommandState(enum.Enum):
    """PENDING: accepted, and not in a version yet; HYDRATING: the same, and its query reads its past; RUNNING: in a
    version; COMPLETED: it changed nothing that runs; FAILED: it has no effect."""

    PENDING = "PENDING"
    HYDRATING = "HYDRATING"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


@dataclass(frozen=True)
class CommandOutcome:
    """The outcome of a command that has been accepted.

    Args:
        version: the version of the plan that contains it, None where it is in none.
        tick: where its query began, after which its answer misses nothing that had been read before; None where it
            begins with its sources.
        code, message: of the error, empty for none.
        share: of one that is HYDRATING, which part of the past has been read; None where that is not known.
        batch: the first batch with it, None where it is in none.
        rows: of an INSERT, UPDATE or DELETE how many it has inserted, changed or deleted, where that is known.
        hint: of the error, None for none.
    """

    number: int
    state: CommandState
    version: int | None = None
    tick: int | None = None
    code: str = ""
    message: str = ""
    share: float | None = None
    batch: int | None = None
    rows: int | None = None
    hint: str | None = None

    @property
    def error(self) -> PenstockError | None:
        return PenstockError(self.code, self.message, hint=self.hint) if self.code else None

    def document(self) -> Document:
        return {
            "number": self.number,
            "state": self.state.value,
            "version": self.version,
            "tick": self.tick,
            "code": self.code,
            "message": self.message,
            "batch": self.batch,
            "rows": self.rows,
            "hint": self.hint,
        }

    @staticmethod
    def read(document: Document) -> CommandOutcome:
        return CommandOutcome(
            integer(document, "number"),
            CommandState(text(document, "state")),
            optional_integer(document, "version"),
            optional_integer(document, "tick"),
            text(document, "code"),
            text(document, "message"),
            batch=optional_integer(document, "batch"),
            rows=optional_integer(document, "rows"),
            hint=None if document["hint"] is None else text(document, "hint"),
        )


@dataclass(frozen=True)
class StatementOutcome:
    """The outcome of one statement of a script.

    Args:
        kind: such as `CREATE QUERY` or `SELECT`.
        text: as written.
        outcome: of a statement that changes something; None for one that does not.
        command: the bound statement; None for one that was posted before with the same key.
        warnings: probable mistakes in it.
        position: its place in the script; None where it has none there.
    """

    kind: str
    text: str
    outcome: CommandOutcome | None = None
    command: Command | None = None
    warnings: tuple[ScriptWarning, ...] = ()
    position: Position | None = None
