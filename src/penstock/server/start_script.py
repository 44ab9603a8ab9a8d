"""The script that a server executes when it starts: every statement once, however often the server starts with it.

A declaration is executed where it is new or differs from what the last start with it declared, and replaces what has
its name then. One that is the same stays as it is, also where commands have changed it since; one that was dropped
comes again. A declaration that is no longer in the script stays. Every other statement that changes something, such as
INSERT or ALTER, happens once: rows that are inserted belong to the declaration that is there then.

What was executed is kept in `control/started.json`. A crash before it is written is no matter: the command log has the
statement under a key of its own.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.control.live.control import Control
from penstock.control.outcomes import SYSTEM, CommandOutcome, CommandState, StatementOutcome
from penstock.control.sealed_files import SealedFiles
from penstock.language.commands import ChangeSetting
from penstock.language.scripts.parse import parse_script
from penstock.language.statements import (
    Creation,
    DeleteStatement,
    Existence,
    Insert,
    TransactionStatement,
    UpdateStatement,
)
from penstock.language.statements.script import Script
from penstock.storage.documents import array, as_integer, as_text

_DONE = "started.json"
#: Begins the idempotency keys of starts; behind it come the digest, the number of the attempt, and what it is.
_KEY = "start "
_CHANGES_ROWS = (Insert, UpdateStatement, DeleteStatement)


@dataclass(frozen=True)
class _Executed:
    """A statement that a start has executed. digest: of its text and settings; number: of its command, 0 for none."""

    digest: str
    number: int


class StartScript:
    """Executes scripts at the start of one server.

    Args:
        folder: of the checkpoint.
    """

    def __init__(self, control: Control, folder: Path) -> None:
        self._control = control
        self._files = SealedFiles(folder / "control")
        #: What was executed last: by the file, and by the log where that is later.
        self._done: dict[str, _Executed] = {}
        #: The number of commands of starts, also of those that failed.
        self._attempts: Counter[str] = Counter()
        if _DONE in self._files.names():
            for what, entry in self._files.read(_DONE).items():
                digest, number = array({what: entry}, what)
                self._done[what] = _Executed(as_text(digest, what), as_integer(number, what))

    def execute(self, script: str, name: str) -> list[StatementOutcome]:
        """Execute a script, statement by statement, or as a whole where it is a transaction; return the outcomes of
        what was executed. SET holds for the statements behind it.

        Raises:
            ScriptErrors, PenstockError: of the first statement that fails; those before it have been executed.
        """
        self._read_log()
        parsed = parse_script(script, name)
        if any(isinstance(one, TransactionStatement) for one in parsed.statements):
            return self._once("once script", script, parsed, {})
        seen: Counter[str] = Counter()
        settings: dict[str, str] = {}
        outcomes: list[StatementOutcome] = []
        for statement in parsed.statements:
            text = parsed.text_of(statement)
            if isinstance(statement, Creation):
                name = f"{'function' if statement.is_function else 'object'} {statement.name.key}"
                found = self._declared(f"{name} {seen[name]}", statement, parsed, settings)
                seen[name] += 1
            else:
                what = f"once {_digest(text, {})} {seen[text]}"
                if isinstance(statement, _CHANGES_ROWS):
                    what += f" {self._id_of(statement.name.key)}"
                found = self._once(what, text, parsed.with_only(statement), settings)
                seen[text] += 1
            settings |= {one.command.key: one.command.value for one in found if isinstance(one.command, ChangeSetting)}
            outcomes += found
        return outcomes

    def _declared(
        self, what: str, statement: Creation, script: Script, settings: Mapping[str, str]
    ) -> list[StatementOutcome]:
        text = script.text_of(statement)
        known = self._done.get(what)
        exists = self._id_of(statement.name.key, statement.is_function) is not None
        if known is not None and known.digest == _digest(text, settings) and exists:
            return []
        if statement.existence is None:
            statement = replace(statement, existence=Existence.OR_REPLACE)
        return self._submit(what, text, script.with_only(statement), settings)

    def _once(self, what: str, text: str, posted: Script, settings: Mapping[str, str]) -> list[StatementOutcome]:
        known = self._done.get(what)
        if known is not None and known.digest == _digest(text, settings):
            return []
        return self._submit(what, text, posted, settings)

    def _submit(self, what: str, text: str, posted: Script, settings: Mapping[str, str]) -> list[StatementOutcome]:
        digest = _digest(text, settings)
        outcomes = self._control.submit(posted, settings, key=f"{_KEY}{digest} {self._attempts[what]} {what}")
        commands = [one.outcome for one in outcomes if one.outcome is not None]
        for outcome in commands:
            if outcome.error is not None:
                raise outcome.error
        if commands or what.startswith(("object ", "function ")):
            self._done[what] = _Executed(digest, max((one.number for one in commands), default=0))
            self._files.write(_DONE, {key: [one.digest, one.number] for key, one in self._done.items()})
        return outcomes

    # -- what is known -----------------------------------------------------------------------------------------

    def _read_log(self) -> None:
        """Take over what the log has: a start may have ended before it wrote its file."""
        self._attempts.clear()
        for what, digest, outcome in self._starts():
            self._attempts[what] += 1
            known = self._done.get(what)
            if outcome.state is not CommandState.FAILED and (known is None or outcome.number > known.number):
                self._done[what] = _Executed(digest, outcome.number)

    def _starts(self) -> Iterator[tuple[str, str, CommandOutcome]]:
        """Yield the commands of starts that the log has: what they were, the digest, and the outcome."""
        for transaction, _, outcome in self._control.commands():
            key = transaction.key or ""
            if transaction.who == SYSTEM.name and key.startswith(_KEY):
                digest, _, what = key.removeprefix(_KEY).partition(" ")
                yield what.partition(" ")[2], digest, outcome

    def _id_of(self, name: str, is_function: bool = False) -> int | None:
        """Return the number of a declaration."""
        for one in self._control.stored.values():
            if one.name.lower() == name and (one.kind in ("FUNCTION", "AGGREGATE")) == is_function:
                return one.id
        return None


def _digest(text: str, settings: Mapping[str, str]) -> str:
    posted = repr((text, sorted(settings.items())))
    return hashlib.sha256(posted.encode("utf-8", "surrogatepass")).hexdigest()
