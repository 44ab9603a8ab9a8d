"""The role that each statement needs, and what is checked before a statement is bound."""

from __future__ import annotations

import sys

import pytest

from penstock.errors import PenstockError
from penstock.language.catalog import Catalog
from penstock.language.commands import DropCommand, Dropped
from penstock.language.scripts.parse import parse_script
from penstock.language.scripts.script_binder import bind_command
from penstock.server.access import StatementAccess
from penstock.server.policy import ServerPolicy
from penstock.server.roles import ANYONE, AccessRole, Caller
from penstock.settings import Settings

ADMIN = Caller("ada", AccessRole.ADMIN)


@pytest.mark.parametrize(
    ("text", "role", "kind"),
    [
        ("SELECT a FROM s", AccessRole.READ, "SELECT"),
        ("(SELECT a FROM s)", AccessRole.READ, "SELECT"),
        ("WITH v AS (SELECT a FROM s) SELECT a FROM v", AccessRole.READ, "SELECT"),
        ("/* first */ CREATE /* then */ QUERY IF NOT EXISTS q AS SELECT a FROM s", AccessRole.CONTROL, "CREATE QUERY"),
        ("SHOW QUERIES", AccessRole.READ, "SHOW"),
        ("DESCRIBE q", AccessRole.READ, "DESCRIBE"),
        ("SUBSCRIBE TO q", AccessRole.READ, "SUBSCRIBE"),
        ("SET shards = 2", AccessRole.READ, "SET"),
        ("CREATE OR REPLACE QUERY q AS SELECT a FROM s", AccessRole.CONTROL, "CREATE QUERY"),
        ("CREATE STREAM s (a INT) FROM HTTP () TIMESTAMP BY a", AccessRole.CONTROL, "CREATE STREAM"),
        ("ALTER QUERY q PAUSE", AccessRole.CONTROL, "ALTER QUERY"),
        ("DROP QUERY q", AccessRole.CONTROL, "DROP QUERY"),
        ("INSERT INTO s VALUES (1)", AccessRole.CONTROL, "INSERT"),
        ("DELETE FROM r", AccessRole.CONTROL, "DELETE"),
        ("UPDATE r SET a = 1", AccessRole.CONTROL, "UPDATE"),
        ("CANCEL 'x'", AccessRole.READ, "CANCEL"),
        ("ALTER SYSTEM SET trigger = '1 second'", AccessRole.ADMIN, "ALTER SYSTEM"),
        ("CREATE FUNCTION f (INT) RETURNS INT AS 'feeds:f'", AccessRole.ADMIN, "CREATE FUNCTION"),
        ("DROP FUNCTION f", AccessRole.ADMIN, "DROP FUNCTION"),
    ],
)
def test_roles_and_kinds(text: str, role: AccessRole, kind: str) -> None:
    (statement,) = parse_script(text).statements
    assert statement.role is role
    assert statement.statement_kind == kind


def test_a_module_that_is_not_allowed_is_never_loaded() -> None:
    access = StatementAccess(ServerPolicy(modules=("feeds",)))
    sys.modules.pop("antigravity", None)
    with pytest.raises(PenstockError, match="P0805"):
        access.check_script(parse_script("CREATE FUNCTION f (INT) RETURNS INT AS 'antigravity:fly'"), ADMIN)
    assert "antigravity" not in sys.modules
    access.check_script(parse_script("CREATE FUNCTION f (INT) RETURNS INT AS 'feeds:f'"), ADMIN)


def test_settings_of_the_start_cannot_be_set() -> None:
    access = StatementAccess(ServerPolicy())
    with pytest.raises(PenstockError, match="P0805"):
        access.check_script(parse_script("SET spark.jars = 'x'"), ADMIN)
    access.check_script(parse_script("SET integer_division = true"), ADMIN)


@pytest.mark.parametrize(
    "text",
    [
        "CREATE STREAM s (a INT) FROM FILES (path '/etc/*.csv') TIMESTAMP BY a",
        "CREATE QUERY q INTO FILES (path '/etc/x') AS SELECT a FROM n",
        "CREATE STREAM s (a INT) FROM POSTGRES (host 'evil', table 't', version 'a', password 'x') TIMESTAMP BY a",
    ],
)
def test_commands_that_reach_out_are_refused(text: str) -> None:
    catalog = Catalog()
    for one in ("CREATE STREAM n (a INT) FROM MEMORY () TIMESTAMP BY a", text):
        parsed = parse_script(one)
        command, _ = bind_command(parsed.statements[0], catalog, Settings(), parsed.source)
        if one is text:
            with pytest.raises(PenstockError, match="P0805"):
                StatementAccess(ServerPolicy()).check_command(command, ANYONE)
        else:
            StatementAccess(ServerPolicy()).check_command(command, ANYONE)
            catalog = catalog.with_source(command.source)  # type: ignore[union-attr]


def test_a_difference_drops_functions_for_admins_alone() -> None:
    """The text of a script that is the whole catalog does not have what it drops."""
    command = DropCommand("AGGREGATE", "f", drops=(Dropped("AGGREGATE", "f"),))
    access = StatementAccess(ServerPolicy())
    access.check_command(command, Caller("ada", AccessRole.ADMIN))
    with pytest.raises(PenstockError, match="P0802"):
        access.check_command(command, Caller("ada", AccessRole.CONTROL))
    access.check_command(DropCommand("VIEW", "v", drops=(Dropped("VIEW", "v"),)), Caller("ada", AccessRole.CONTROL))
