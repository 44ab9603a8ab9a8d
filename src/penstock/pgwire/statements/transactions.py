"""The transaction of a connection: commands wait for COMMIT, and then happen together or not at all.

Each is checked when it comes, with those before it. What is read meanwhile is the state without them. Outside of a
transaction a command happens at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.pgwire.protocol.errors import (
    FAILED_TRANSACTION,
    NO_TRANSACTION,
    READ_ONLY,
    WireError,
    unsupported,
)
from penstock.pgwire.statements.script_texts import WrittenCommand


@dataclass(frozen=True)
class CopiedRows:
    """Rows of a COPY. source: name of what they go into; size: bytes in which they came."""

    source: str
    rows: pa.Table
    size: int


@dataclass
class PgTransaction:
    """A transaction that has begun. It has either commands or rows of COPY, since both cannot happen together.

    Args:
        commands: statements of the language.
        copied: rows of COPY, with the name of the source and the bytes in which they came.
        undo, at_end: go back to the settings from before, when it is rolled back and in any case.
    """

    is_read_only: bool = False
    is_failed: bool = False
    commands: list[WrittenCommand] = field(default_factory=list)
    copied: list[CopiedRows] = field(default_factory=list)
    savepoints: list[tuple[str, int, int]] = field(default_factory=list)
    undo: list[Callable[[], object]] = field(default_factory=list)
    at_end: list[Callable[[], object]] = field(default_factory=list)

    @property
    def state(self) -> str:
        """Return the letter of ReadyForQuery."""
        return "E" if self.is_failed else "T"

    def check(self) -> None:
        """Raises WireError 25P02 in a transaction that has failed."""
        if self.is_failed:
            raise WireError(FAILED_TRANSACTION, "the transaction has failed", "ROLLBACK ends it", code="P0732")

    def check_writes(self) -> None:
        """Raises WireError 25006 in a transaction that only reads."""
        if self.is_read_only:
            raise WireError(READ_ONLY, "the transaction is READ ONLY", "BEGIN READ WRITE", code="P0802")

    def check_command(self) -> None:
        """Raises WireError 0A000 behind a COPY."""
        if self.copied:
            raise unsupported("a command behind COPY FROM in one transaction", "COMMIT the COPY first")

    def check_copy(self, source: str) -> None:
        """Raises WireError 0A000 behind commands, and behind a COPY into another source."""
        if self.commands or any(one.source != source for one in self.copied):
            hint = "a transaction has either commands or COPY into one stream or relation: COMMIT first"
            raise unsupported("COPY FROM together with other changes in one transaction", hint)

    def undone(self) -> None:
        """Go back to the settings from before."""
        for action in reversed(self.undo):
            action()

    def save(self, name: str) -> None:
        self.savepoints.append((name, len(self.commands), len(self.copied)))

    def release(self, name: str) -> None:
        del self.savepoints[self._place(name) :]

    def roll_back_to(self, name: str) -> None:
        """Forget the commands since a savepoint, which stays."""
        place = self._place(name)
        _, commands, copied = self.savepoints[place]
        del self.commands[commands:]
        del self.copied[copied:]
        del self.savepoints[place + 1 :]
        self.is_failed = False

    def _place(self, name: str) -> int:
        for place in range(len(self.savepoints) - 1, -1, -1):
            if self.savepoints[place][0] == name:
                return place
        raise WireError("3B001", f"there is no savepoint {name}", code="P0732")


def outside(what: str) -> WireError:
    """Return the error for what stands in a transaction only."""
    return WireError(NO_TRANSACTION, f"{what} needs a transaction", "BEGIN first", code="P0732")
