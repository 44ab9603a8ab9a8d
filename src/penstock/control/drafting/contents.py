"""What transactions are drafted of: a posted script, the failure of a query, or steps of queries that are due."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from penstock.control.drafting.script import ScriptCommands
from penstock.control.outcomes import SYSTEM, Principal
from penstock.errors import PenstockError, Position, ScriptWarning
from penstock.language.commands import Command
from penstock.language.statements.script import Script


class ScriptMode(enum.Enum):
    """TOGETHER: the script is one transaction; EACH: each statement is one, as at a start; WHOLE: the script has all
    declarations, and the difference to the present ones is one."""

    TOGETHER = "TOGETHER"
    EACH = "EACH"
    WHOLE = "WHOLE"


@dataclass(frozen=True)
class PostedScript:
    """A script that was posted.

    Args:
        settings: of the session, as written.
        key: its idempotency key.
        digest: of what was posted.
    """

    commands: ScriptCommands
    mode: ScriptMode = ScriptMode.TOGETHER
    settings: Mapping[str, str] = field(default_factory=dict)
    who: Principal = SYSTEM
    key: str | None = None
    digest: str = ""


@dataclass(frozen=True)
class NotedFailure:
    """A query that failed alone. place, computation: those of its answers; computation: None where it is not known."""

    place: int
    computation: int | None
    error: PenstockError

    @property
    def text(self) -> str:
        """Return the text of it in the log."""
        return f"FAILED: {self.error.code} {self.error.message}"


@dataclass(frozen=True)
class DueSteps:
    """The steps of queries that are due: of changes of plans, and of what waits for rows."""


Content: TypeAlias = "PostedScript | NotedFailure | DueSteps"


@dataclass(frozen=True)
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
