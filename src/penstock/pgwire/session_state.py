"""What a connection has beside its statements: a transaction, settings of PostgreSQL's and of the language."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from penstock.errors import PenstockError, close_names, nearest
from penstock.pgwire.protocol.errors import WireError
from penstock.pgwire.replies import LineRows, TableRows, text_columns
from penstock.pgwire.statements.clauses import Reader, SettingClause, read_modes
from penstock.pgwire.statements.lexing import Statement
from penstock.pgwire.statements.transactions import PgTransaction, outside
from penstock.pgwire.statements.variables import Variables, shown_name

#: The idempotency key of the commands that follow.
KEY = "penstock.key"
#: The position that a SELECT or SUBSCRIBE waits for, and the one up to which this connection has added rows.
AFTER, POSITION = "penstock.after", "penstock.position"
#: Settings that belong to a connection, and are none of the language's.
OWN = frozenset({KEY, AFTER, POSITION})
#: From which similarity on the name of a setting is a misspelt one.
_CLOSE = 0.8
_SHOWN = {
    "TIME ZONE": "timezone",
    "TRANSACTION ISOLATION LEVEL": "transaction_isolation",
    "SESSION AUTHORIZATION": "session_authorization",
}


def check_own(name: str) -> None:
    """Raise WireError 42704 for a name that begins as the settings of this server, and is none."""
    if name.lower().startswith("penstock.") and name.lower() not in OWN:
        raise WireError("42704", f"there is no setting {name[:100]}", nearest(name, sorted(OWN)), code="P0104")


class SessionState:
    """See the module.

    Args:
        notice: sends a notice to the client: severity, text and hint.

    Attributes:
        transaction: that is open; None for none.
        settings: of the language, as written.
    """

    def __init__(self, variables: Variables, notice: Callable[[str, str, str | None], None]) -> None:
        self.transaction: PgTransaction | None = None
        self.settings: dict[str, str] = {}
        #: Of the rows that were added last.
        self.position: str | None = None
        self.variables = variables
        self.notice = notice

    def fail(self) -> None:
        """Note that a statement has failed."""
        if self.transaction is not None:
            self.transaction.is_failed = True

    def check_writes(self) -> None:
        """Raises WireError 25006 where nothing may be changed."""
        (self.transaction or PgTransaction(self.variables.is_read_only)).check_writes()

    def knows(self, name: str) -> bool:
        """Return whether there is a setting that is none of the language's."""
        return self.variables.knows(name) or name.lower() in OWN

    def explain(self, error: PenstockError) -> None:
        """Add to the error of an unknown name that declarations of its own transaction take effect at COMMIT."""
        if error.code == "P0201" and self.transaction is not None and self.transaction.commands:
            error.hint = "; ".join(filter(None, ("what this transaction declares is there behind COMMIT", error.hint)))

    def notice_pending(self, statement: Statement) -> None:
        """Send a notice that a SELECT does not see the commands of its own transaction."""
        transaction = self.transaction
        if transaction is not None and statement.words(1)[0] in ("SELECT", "WITH", "TABLE", "VALUES"):
            pending = len(transaction.commands) + len(transaction.copied)
            if pending:
                shown = "1 statement" if pending == 1 else f"{pending} statements"
                text = f"{shown} of this transaction will happen at COMMIT, and the answer is without them"
                self.notice("NOTICE", text, "read behind COMMIT, or use autocommit")

    # -- transactions ------------------------------------------------------------------------------------------

    def begin(self, statement: Statement) -> None:
        modes = read_modes(statement)
        if self.transaction is not None:
            self.notice("WARNING", "there is a transaction in progress already", None)
            return
        if "isolation" in modes:
            self.variables.set("transaction_isolation", modes["isolation"])
        is_read_only = modes.get("read_only", "on" if self.variables.is_read_only else "off") == "on"
        self.transaction = PgTransaction(is_read_only)

    def end(self) -> PgTransaction | None:
        """Return the transaction that ends here, None where there was none."""
        done, self.transaction = self.transaction, None
        if done is None:
            self.notice("WARNING", "there is no transaction in progress", None)
        else:
            for action in reversed(done.at_end):
                action()
        return done

    def roll_back(self, statement: Statement) -> bool:
        """Undo a transaction, or what follows a savepoint; return whether the transaction has ended."""
        reader = Reader(statement, 1)
        reader.take("WORK", "TRANSACTION")
        if reader.take("TO"):
            reader.take("SAVEPOINT")
            if self.transaction is None:
                raise outside("ROLLBACK TO")
            self.transaction.roll_back_to(reader.name())
            return False
        reader.end()
        done = self.end()
        if done is not None:
            done.undone()
        return True

    def savepoint(self, statement: Statement, releases: bool) -> None:
        reader = Reader(statement, 1)
        reader.take("SAVEPOINT")
        name = reader.name()
        if self.transaction is None:
            raise outside("RELEASE" if releases else "SAVEPOINT")
        (self.transaction.release if releases else self.transaction.save)(name)

    # -- settings ----------------------------------------------------------------------------------------------

    def set_modes(self, statement: Statement) -> None:
        """Carry out SET TRANSACTION, and SET SESSION CHARACTERISTICS."""
        modes = read_modes(statement)
        is_default = "CHARACTERISTICS" in statement.words(3)
        if "isolation" in modes:
            self.variables.set(f"{'default_' if is_default else ''}transaction_isolation", modes["isolation"])
        if "read_only" in modes and is_default:
            self.variables.set("default_transaction_read_only", modes["read_only"])
        elif "read_only" in modes and self.transaction is not None:
            self.transaction.is_read_only = modes["read_only"] == "on"

    def set(self, setting: SettingClause) -> None:
        """Set one. Raises WireError."""
        name = setting.name.lower()
        if setting.local and self.transaction is None:
            self.notice("WARNING", "SET LOCAL has no effect outside of a transaction", None)
            return
        if self.variables.knows(name):
            before = self.variables.get(name) or ""
            if setting.value is None:
                self.variables.reset(name)
            else:
                self.variables.set(name, setting.value)
            self._note(lambda: self.variables.set(name, before), setting.local)
            return
        kept = self.settings.get(name)
        self._restore(name, setting.value)
        self._note(lambda: self._restore(name, kept), setting.local)

    def _restore(self, name: str, value: str | None) -> None:
        if value is None:
            self.settings.pop(name, None)
        else:
            self.settings[name] = value

    def _note(self, action: Callable[[], object], local: bool) -> None:
        """Note how a setting becomes what it was: with ROLLBACK, or at the end of a transaction."""
        if self.transaction is not None:
            (self.transaction.at_end if local else self.transaction.undo).append(action)

    def reset(self, statement: Statement) -> None:
        """Carry out RESET."""
        name = "".join(token.text for token in statement.tokens[1:])
        if name.upper() == "ALL":
            self.discard()
        elif name.lower() in self.settings:
            del self.settings[name.lower()]
        else:
            self.variables.reset(name)

    def discard(self) -> None:
        """Forget all settings."""
        self.settings.clear()
        self.variables.reset()

    def check_shown(self, statement: Statement) -> None:
        """Raise WireError 42704 for SHOW with a setting that is misspelt."""
        name = "".join(token.text for token in statement.tokens[1:]).lower()
        close = close_names(name, self.variables.all(), least=_CLOSE)
        if close:
            raise WireError("42704", f"there is no setting {name}", f"did you mean {close[0]}?", code="P0104")

    def shown(self, statement: Statement) -> TableRows:
        """Return what SHOW shows."""
        reader = Reader(statement, 1)
        if reader.take("ALL"):
            pairs: Mapping[str, str] = self.variables.all()
            table = pa.table({"name": list(pairs), "setting": list(pairs.values())})
            return TableRows(table, text_columns("name", "setting"))
        whole = "".join(token.text for token in statement.tokens[1:]).lower()
        if whole in OWN:
            own = {POSITION: self.position, KEY: self.settings.get(KEY), AFTER: self.settings.get(AFTER)}
            return LineRows(whole, [own[whole] or ""])
        check_own(whole)
        name = _SHOWN.get(" ".join(token.word for token in statement.tokens[1:])) or reader.name()
        value = self.variables.get(name)
        if value is None:
            raise WireError("42704", f"there is no setting {name}", code="P0104")
        return LineRows(shown_name(name), [value])
