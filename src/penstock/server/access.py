"""What a caller may execute: the role that each statement needs, and what the policy of the server allows.

Both are checked before a statement is bound, as far as its text shows: binding CREATE FUNCTION loads the module. The
rest is checked on the bound command, before it is accepted.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.control.drafting.script import placed_at
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
from penstock.language.statements import CreateFunction, ExplainStatement, SetSetting, Statement
from penstock.language.statements.script import Script
from penstock.server.policy import ServerPolicy
from penstock.server.roles import AccessRole, Caller

#: What runs code, where it is dropped.
_CODE = ("FUNCTION", "AGGREGATE")


@dataclass(frozen=True)
class StatementAccess:
    """The checks of a server."""

    policy: ServerPolicy

    def check_script(self, script: Script, caller: Caller) -> None:
        """Raises PenstockError P0802 for a statement that the caller's role does not allow, P0805 for one that the
        server does not."""
        for statement in script.statements:
            with placed_at(script.position_of(statement)):
                caller.need(statement.role, f"for {statement.statement_kind}")
                self._check_statement(statement)

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
