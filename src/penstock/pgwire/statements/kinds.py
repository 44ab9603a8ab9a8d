"""What a statement is: one about the connection, one over the catalogs, or one of the language."""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import lru_cache

from sqlglot import exp

from penstock.language.elsewhere import FIRST_WORDS, STATEMENTS
from penstock.language.queries import CONTROL_SCHEMA
from penstock.pgwire.catalog.declarations.control_tables import ControlReads, control_reads
from penstock.pgwire.catalog.declarations.tables import SCHEMAS, system_columns
from penstock.pgwire.catalog.engine import is_system_table, parsed, tables_of
from penstock.pgwire.protocol.errors import unsupported
from penstock.pgwire.statements.lexing import Statement, plain_text
from penstock.server.statements.parsing import SMALL


class Does(enum.Enum):
    """What carries a statement out. READS, SUBSCRIBES and COMMANDS go to the service."""

    BEGINS = "BEGIN"
    COMMITS = "COMMIT"
    ROLLS_BACK = "ROLLBACK"
    SAVES = "SAVEPOINT"
    RELEASES = "RELEASE"
    SETS = "SET"
    RESETS = "RESET"
    SHOWS = "SHOW"
    DISCARDS = "DISCARD ALL"
    UNLISTENS = "UNLISTEN"
    PREPARES = "PREPARE"
    EXECUTES = "EXECUTE"
    DEALLOCATES = "DEALLOCATE"
    DECLARES = "DECLARE CURSOR"
    FETCHES = "FETCH"
    CLOSES = "CLOSE CURSOR"
    COPIES = "COPY"
    LOOKS_UP = "SELECT"
    READS = "READ"
    SUBSCRIBES = "SUBSCRIBE"
    COMMANDS = "COMMAND"


_FIRST = {
    "BEGIN": Does.BEGINS, "START": Does.BEGINS, "COMMIT": Does.COMMITS, "END": Does.COMMITS,
    "ROLLBACK": Does.ROLLS_BACK, "ABORT": Does.ROLLS_BACK, "SAVEPOINT": Does.SAVES, "RELEASE": Does.RELEASES,
    "SET": Does.SETS, "RESET": Does.RESETS, "DISCARD": Does.DISCARDS, "DEALLOCATE": Does.DEALLOCATES,
    "UNLISTEN": Does.UNLISTENS, "PREPARE": Does.PREPARES, "EXECUTE": Does.EXECUTES,
    "DECLARE": Does.DECLARES, "FETCH": Does.FETCHES, "CLOSE": Does.CLOSES, "COPY": Does.COPIES,
    "SUBSCRIBE": Does.SUBSCRIBES, "EXPLAIN": Does.READS, "EXPORT": Does.READS, "DESCRIBE": Does.READS,
}  # fmt: skip
_QUERIES = frozenset({"SELECT", "WITH", "VALUES", "TABLE", "("})
#: Statements of PostgreSQL that the language has not; what CREATE and DROP are of comes from the language.
_UNKNOWN = frozenset({
    "LISTEN", "NOTIFY", "LOCK", "GRANT", "REVOKE", "VACUUM", "ANALYZE", "CLUSTER", "REINDEX",
    "TRUNCATE", "COMMENT", "CHECKPOINT", "LOAD", "MOVE", "MERGE", "CALL", "DO", "REFRESH", "REASSIGN",
    "SECURITY", "IMPORT",
})  # fmt: skip
_MADE = frozenset({"TABLE", "INDEX", "SEQUENCE", "SCHEMA", "DATABASE", "USER", "ROLE", "EXTENSION", "TRIGGER", "TYPE",
                   "DOMAIN", "RULE", "POLICY", "TABLESPACE", "MATERIALIZED", "TEMP", "TEMPORARY", "UNLOGGED", "FOREIGN",
                   "SERVER", "PUBLICATION", "SUBSCRIPTION", "COLLATION", "CAST", "OPERATOR", "PROCEDURE",
                   "UNIQUE"})  # fmt: skip


#: What to do instead of some of them.
_INSTEAD = {
    "TRUNCATE": "DELETE FROM name removes rows of a relation with OPERATION BY and SYSTEM TIME",
    "MERGE": "in a relation with PRIMARY KEY and TIMESTAMP BY an INSERT replaces the row of its key",
    "REFRESH": "a continuous query is up to date by itself",
    "LISTEN": "SUBSCRIBE TO name answers with rows as they come",
    "NOTIFY": "SUBSCRIBE TO name answers with rows as they come",
    "GRANT": "roles are those of tokens: penstock token add NAME --role read",
    "REVOKE": "roles are those of tokens: penstock token revoke NAME",
}


@dataclass(frozen=True)
class Classified:
    """A statement and what it does.

    Args:
        tree: of one over the catalogs, with parameters for `$n`.
        reads_tables: whether it names any of them.
        control: what it reads of control relations beside them.
    """

    statement: Statement
    does: Does
    tree: exp.Expr | None = None
    reads_tables: bool = False
    control: ControlReads = field(default_factory=dict)

    @property
    def has_rows(self) -> bool:
        """Return whether it answers with rows."""
        return self.does in (Does.SHOWS, Does.FETCHES, Does.LOOKS_UP, Does.READS, Does.SUBSCRIBES)


def classify(
    statement: Statement, names: Callable[[], Collection[str]], is_setting: Callable[[str], bool]
) -> Classified:
    """Return what a statement does.

    Args:
        names: returns the names that are declared, in lower case.
        is_setting: whether PostgreSQL has a setting of this name.

    Raises:
        WireError: 0A000 for a statement that only PostgreSQL has, and for one over catalogs and declarations together.
    """
    first, second = (*statement.words(2), "")[:2]
    if first == "SHOW":
        name = "".join(token.text for token in statement.tokens[1:])
        is_known = second in ("ALL", "TIME", "TRANSACTION", "SESSION", "PENSTOCK") or is_setting(name)
        return Classified(statement, Does.SHOWS if is_known else Does.READS)
    if (does := _FIRST.get(first)) is not None:
        return Classified(statement, does)
    if first in _QUERIES:
        tree = over_catalogs(statement, names)
        if tree is None:
            return Classified(statement, Does.READS)
        return Classified(statement, Does.LOOKS_UP, tree, bool(tables_of(tree)), control_reads(tree))
    if first in _UNKNOWN or (first in ("CREATE", "DROP", "ALTER") and second in _MADE):
        what = first if first in _UNKNOWN else f"{first} {second}"
        hint = STATEMENTS.get((first, second)) or _INSTEAD.get(first) or FIRST_WORDS.get(first)
        if hint is None and second in _MADE:
            hint = "CREATE STREAM, RELATION, VIEW and QUERY declare"
        raise unsupported(f"{what} is a statement of PostgreSQL that this server has not", hint, 0)
    return Classified(statement, Does.COMMANDS)


@lru_cache(maxsize=64)
def _tree_of(text: str) -> exp.Expr | None:
    """Return the tree of a query, which nothing changes: a statement is read more than once, as when it is prepared and
    when it is declared as a cursor."""
    return parsed(text)


def over_catalogs(statement: Statement, names: Callable[[], Collection[str]]) -> exp.Expr | None:
    """Return the tree of a query that reads the catalogs, or nothing; None for one of the language."""
    words = {name.lower() for token in statement.tokens if (name := token.name) is not None}
    if "from" in words or "table" in words:
        is_system = any(word in SCHEMAS or ("pg_catalog", word) in system_columns() for word in words)
        if not is_system and words & set(names()):
            return None
    text = plain_text(statement)
    tree = _tree_of(text) if len(text) <= SMALL else parsed(text)
    # A value is no table.
    if tree is None or any(isinstance(one.this, exp.Parameter) for one in tree.find_all(exp.Table)):
        return None
    tables = tables_of(tree)
    declared = set(names()) if tables else set()
    system = {one for one in tables if is_system_table(*one) and not (not one[0] and one[1] in declared)}
    if not system and tables:
        return None
    others = {one for one in tables - system if one[0] != CONTROL_SCHEMA}
    if others:
        other = sorted(name for _, name in others)[0]
        hint = "select them apart, and join them in the client"
        raise unsupported(f"PostgreSQL's catalogs cannot be joined with {other}", hint)
    return tree
