"""A script that was posted, from then until its transaction is applied."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from penstock.control.command_log import Transaction
from penstock.control.outcomes import Principal
from penstock.control.registry import Registry
from penstock.control.transactions.script import ScriptCommands
from penstock.errors import PenstockError, Position, ScriptWarning
from penstock.language.commands import Command
from penstock.language.statement_kinds.script import Script


@dataclass(frozen=True)
class NotedFailure:
    """A query that failed alone. place, track: those of its answers; track: None where it is not known."""

    place: int
    track: int | None
    error: PenstockError

    @property
    def text(self) -> str:
        """Return what the log says of it."""
        return f"FAILED: {self.error.code} {self.error.message}"


@dataclass
class BoundStatement:
    """A statement of a script, or of the difference to one, once it is bound.

    Args:
        position: its place in the script; None where that does not have it.
        script: the statement alone; None for one of a difference.
    """

    kind: str
    text: str
    command: Command
    warnings: tuple[ScriptWarning, ...] = ()
    position: Position | None = None
    script: Script | None = None


@dataclass
class PostedScript:
    """A script, which is one transaction.

    Args:
        settings: of the session, as written.
        key: its idempotency key.
        digest: of what was posted.
        separate: each statement is a transaction of its own, as at a start.
        is_whole: the script says all that is to be declared: its commands are the difference, known once it is bound.
        failure: of a query, noted by the system itself; there are no commands then.
        looks: the system takes the steps of changes of plans that are due; there are no commands then.
        steps: what the log says of these.
        begins: the query and the choices of a change of a plan that begins with it.
        transaction: as it stands in the log; None before, and where it changes nothing.
        after: the declarations with what it changes, once it is accepted.
        bound: its statements, or those of the difference, once they are bound.
        error: for which it was refused.
        repeated: it was posted before with the same key.
        accepted: it is in the log, or refused.
        finished: it has been applied, failed, or reads its past.
    """

    commands: ScriptCommands
    settings: dict[str, str]
    who: Principal
    key: str | None
    digest: str
    is_whole: bool = False
    separate: bool = False
    failure: NotedFailure | None = None
    looks: bool = False
    steps: list[str] = field(default_factory=list)
    begins: tuple[int, str] | None = None
    transaction: Transaction | None = None
    after: Registry | None = None
    bound: list[BoundStatement] = field(default_factory=list)
    error: BaseException | None = None
    repeated: bool = False
    accepted: threading.Event = field(default_factory=threading.Event)
    finished: threading.Event = field(default_factory=threading.Event)

    def refuse(self, error: BaseException) -> None:
        """Answer with an error, unless it has been answered."""
        if not self.finished.is_set():
            self.error = error
            self.done()

    def done(self) -> None:
        """Answer."""
        self.accepted.set()
        self.finished.set()
