"""What a caller may execute: the role that each statement needs, and what the policy of the server allows.

Both are checked before a statement is bound, as far as its text says it: binding CREATE FUNCTION loads the module. The
rest is checked on the bound command, before it is accepted.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.control.transactions.script import placed_at
from penstock.errors import PenstockError
from penstock.language.commands import (
    AlterQuery,
    AlterSource,
    AlterSystem,
    ChangeSetting,
    Command,
    CreateQueryCommand,
    CreateSourceCommand,
    DropCommand,
    MoveInto,
)
from penstock.language.parse import parse_script
from penstock.language.statements import (
    AlterSystemStatement,
    CancelStatement,
    CreateFunction,
    DescribeStatement,
    DropStatement,
    ExplainStatement,
    ExportStatement,
    OneTimeSelect,
    SetSetting,
    ShowStatement,
    Statement,
    SubscribeStatement,
    TransactionStatement,
)
from penstock.server.policy import ServerPolicy
from penstock.server.roles import AccessRole, Caller

#: Statements that change nothing but the session. CANCEL of a statement of another token needs more.
_READS = (CancelStatement, ExplainStatement, ExportStatement, OneTimeSelect, SetSetting, ShowStatement,
          DescribeStatement, SubscribeStatement, TransactionStatement)  # fmt: skip
#: What runs code, or changes the whole system.
_ADMIN = (CreateFunction, AlterSystemStatement)
_CODE = ("FUNCTION", "AGGREGATE")
#: Words between CREATE and the kind of what is created.
_BETWEEN = frozenset({"OR", "REPLACE", "NON", "RETROACTIVE"})


def role_of(statement: Statement) -> AccessRole:
    """Return the role that a statement needs."""
    if isinstance(statement, _READS):
        return AccessRole.READ
    if isinstance(statement, _ADMIN) or (isinstance(statement, DropStatement) and statement.kind.upper() in _CODE):
        return AccessRole.ADMIN
    return AccessRole.CONTROL


def kind_of(text: str) -> str:
    """Return the kind of a statement, such as `CREATE QUERY` or `SELECT`, from its text."""
    words = [word.upper() for word in text.split(maxsplit=6)]
    first = words[0] if words else ""
    if first not in ("CREATE", "ALTER", "DROP"):
        return "SELECT" if first in ("WITH", "VALUES", "(", "FROM") or first.startswith("(") else first
    return " ".join([first, *[word for word in words[1:] if word not in _BETWEEN][:1]])


@dataclass(frozen=True)
class StatementAccess:
    """The checks of a server."""

    policy: ServerPolicy

    def check_script(self, script: str, caller: Caller) -> tuple[Statement, ...]:
        """Return the statements of a script.

        Raises:
            ScriptErrors: it cannot be read.
            PenstockError: P0802 for a statement that the caller's role does not allow, P0805 for one that the server
                does not.
        """
        parsed = parse_script(script)
        for statement in parsed.statements:
            with placed_at(parsed.source, statement.span):
                caller.need(role_of(statement), f"for {kind_of(parsed.source.slice(statement.span))}")
                self._check_statement(statement)
        return parsed.statements

    def _check_statement(self, statement: Statement) -> None:
        if isinstance(statement, CreateFunction):
            self.policy.check_function(statement.name.text, statement.body)
        elif isinstance(statement, SetSetting):
            self.policy.check_setting(statement.name.text)
        elif isinstance(statement, ExplainStatement) and statement.analyze is not None:
            hint = "penstock explain script.cql --analyze runs it over inputs that end; tap an edge to see rows here"
            raise PenstockError("P0702", "EXPLAIN ANALYZE is not carried out by this server", hint=hint)

    def check_command(self, command: Command, caller: Caller) -> None:
        """Raises PenstockError P0805 for a command that reaches what the server does not allow, P0802 for one that the
        caller's role does not."""
        if isinstance(command, DropCommand) and command.kind in _CODE:
            caller.need(AccessRole.ADMIN, f"for DROP {command.kind}")
        elif isinstance(command, CreateSourceCommand | AlterSource):
            self.policy.check_source(command.source)
        elif isinstance(command, CreateQueryCommand):
            self.policy.check_sink(command.query.name, command.query.sink)
        elif isinstance(command, AlterQuery) and isinstance(command.action, MoveInto):
            self.policy.check_sink(command.name, command.action.sink)
        elif isinstance(command, ChangeSetting | AlterSystem):
            if isinstance(command, AlterSystem):
                caller.need(AccessRole.ADMIN, "for ALTER SYSTEM")
            self.policy.check_setting(command.key)
