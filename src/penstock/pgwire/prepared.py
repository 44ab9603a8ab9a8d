"""The prepared statements of a connection, by name: those of Parse messages and those of PREPARE.

Both are in one name space, as in PostgreSQL. An EXECUTE is replaced by the statement that it names and the values of
its arguments, before anything is carried out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from penstock.pgwire.executor import Executor
from penstock.pgwire.parameter_types import ParameterTypes
from penstock.pgwire.protocol.errors import (
    NO_STATEMENT,
    PROTOCOL,
    SYNTAX,
    TOO_LARGE,
    UNSUPPORTED,
    WireError,
    unsupported,
)
from penstock.pgwire.replies import RowColumn
from penstock.pgwire.statements.bound import Values
from penstock.pgwire.statements.kinds import Classified, Does
from penstock.pgwire.statements.lexing import Statement
from penstock.pgwire.statements.parameters import declared_type
from penstock.pgwire.statements.prepare_clauses import read_deallocate, read_execute, read_prepare
from penstock.pgwire.values.wire_types import WireType

#: Statements that a connection may have, and values that a statement may have.
_MOST, _MOST_VALUES = 10_000, 65_535
#: Values of a statement that is analysed when it is parsed. Each is bound then, once as NULL and once as a sample.
_MOST_ANALYSED = 1_000
#: First words of what PREPARE takes.
_PREPARED = frozenset({"SELECT", "WITH", "VALUES", "TABLE", "(", "INSERT", "UPDATE", "DELETE", "SUBSCRIBE"})


#: Statements whose columns are found when they are parsed.
_ANALYSED = frozenset({Does.LOOKS_UP, Does.READS, Does.SUBSCRIBES})
#: Columns, and the version of the declarations for which they are right.
_Described: TypeAlias = tuple[object, tuple[RowColumn, ...] | None]


@dataclass
class Prepared:
    """A statement.

    Args:
        one: None for an empty text.
        types: of its values.
        described: its columns where Parse found them.
        sent: its columns as sent to the client, with the version of the declarations; None before Describe.
    """

    one: Classified | None
    types: tuple[WireType, ...]
    described: _Described | None = None
    sent: _Described | None = None


class PreparedStatements:
    """All of a connection. executor: classifies statements and checks them."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._prepared: dict[str, Prepared] = {}

    def named(self, name: str, offset: int | None = None) -> Prepared:
        """Return a statement. offset: of the place of an error. Raises WireError 26000."""
        if name not in self._prepared:
            message = f"there is no prepared statement {name[:200]}"
            raise WireError(NO_STATEMENT, message, offset=offset, code="P0201")
        return self._prepared[name]

    def forget(self, name: str) -> None:
        """Remove a statement, if there is one of the name."""
        self._prepared.pop(name, None)

    def clear(self) -> None:
        """Remove all statements."""
        self._prepared.clear()

    async def parse(self, name: str, statement: Statement | None, oids: Sequence[int]) -> None:
        """Add the statement of a Parse message. The one without a name is replaced.

        Args:
            statement: None for an empty text.
            oids: of the types of its values, 0 where the client leaves one open.

        Raises:
            WireError: 42P05 for a name that is in use, 54000 beyond the limit.
        """
        self._check_new(name)
        one = None if statement is None else await self._executor.analysis.classified(statement)
        types = await self._types(one, oids)
        described = None if one is None else await self._described(one, types)
        self._prepared[name] = Prepared(one, types, described)

    async def describe(self, prepared: Prepared) -> tuple[RowColumn, ...] | None:
        """Return the columns of a statement for a client, which then reads its rows by them. Raises PenstockError."""
        version = self._executor.analysis.version()
        columns = await self.columns(prepared)
        prepared.sent = version, columns
        return columns

    async def check(self, prepared: Prepared) -> None:
        """Raise WireError 0A000, as PostgreSQL does, where a statement has other columns by now than the client knows;
        PenstockError where it has become wrong."""
        sent, version = prepared.sent, self._executor.analysis.version()
        if sent is None or sent[0] is version:
            return
        if await self.columns(prepared) != sent[1]:
            hint = "what it reads was replaced since it was described: prepare it again"
            raise WireError(
                UNSUPPORTED,
                "cached plan must not change result type",
                hint,
                code="P0901",
                routine="RevalidateCachedQuery",
            )
        prepared.sent = version, sent[1]

    async def columns(self, prepared: Prepared) -> tuple[RowColumn, ...] | None:
        """Return the columns of a statement as it would be carried out now; None for one without rows. Raises
        PenstockError."""
        one, types = prepared.one, prepared.types
        if one is None:
            return None
        if prepared.described is not None and prepared.described[0] is self._executor.analysis.version():
            return prepared.described[1]
        if one.does is Does.EXECUTES:
            one, values = self.resolved(one)
            types = tuple(type_ for _, type_ in values)
        return await self._executor.analysis.columns(one, types)

    async def _described(self, one: Classified, types: tuple[WireType, ...]) -> _Described | None:
        """Check a statement as far as PostgreSQL does when it parses one; return its columns where that has found
        them. Raises PenstockError."""
        if len(types) > _MOST_ANALYSED:
            return None
        version = self._executor.analysis.version()
        await self._executor.analysis.check(one, types)
        if one.does in _ANALYSED:
            return version, await self._executor.analysis.columns(one, types)
        return None

    async def prepare(self, statement: Statement) -> None:
        """Carry out PREPARE. A statement with rows is checked like one that a client has described. Raises
        PenstockError."""
        given = read_prepare(statement)
        self._check_new(given.name)
        query = given.query
        if query.words(1)[0] not in _PREPARED:
            message = "PREPARE takes a SELECT, SUBSCRIBE, INSERT, UPDATE or DELETE"
            raise WireError(SYNTAX, message, offset=0, code="P0101").moved(query.offset)
        one = await self._executor.analysis.classified(query)
        types = await self._types(one, given.oids)
        if one.has_rows:
            await self._executor.analysis.columns(one, types)
        self._prepared[given.name] = Prepared(_of_earlier(one), types)

    def deallocate(self, statement: Statement) -> None:
        """Carry out DEALLOCATE. Raises WireError 26000."""
        name = read_deallocate(statement)
        if name is None:
            self.clear()
            return
        self.named(name, 0)
        self.forget(name)

    def resolved(self, one: Classified, values: Values = ()) -> tuple[Classified, Values]:
        """Return what is to be carried out in place of a statement: of EXECUTE what it names, of others themselves.

        Raises:
            WireError: 26000 for an unknown name, 42601 for a wrong number of arguments, 42804 and 22P02 for one that
                does not fit, 0A000 for one that is no literal.
        """
        if one.does is not Does.EXECUTES:
            return one, values
        try:
            return self._executed(one.statement)
        except WireError as error:
            raise error.moved(one.statement.offset) from None

    def _executed(self, statement: Statement) -> tuple[Classified, Values]:
        given = read_execute(statement)
        prepared = self.named(given.name, 0)
        if len(given.arguments) != len(prepared.types):
            message = f"{given.name[:200]} has {len(prepared.types)} parameters, {len(given.arguments)} are given"
            raise WireError(SYNTAX, message, "EXECUTE name (value, ...)", 0, "P0204")
        if prepared.one is None or prepared.one.does is Does.EXECUTES:
            raise unsupported("EXECUTE of an empty statement or of another EXECUTE", "EXECUTE the statement itself")
        found = [
            (argument.value(type_, number), type_)
            for number, (argument, type_) in enumerate(zip(given.arguments, prepared.types, strict=True), 1)
        ]
        return _of_earlier(prepared.one), found

    def _check_new(self, name: str) -> None:
        if name and name in self._prepared:
            message = f"there is a prepared statement {name[:200]} already"
            raise WireError("42P05", message, "DEALLOCATE it first", code="P0206")
        if len(self._prepared) >= _MOST and name not in self._prepared:
            raise WireError(TOO_LARGE, f"a connection has {_MOST:,} statements at most", code="P0804")

    async def _types(self, one: Classified | None, oids: Sequence[int]) -> tuple[WireType, ...]:
        """Return the types of the values of a statement."""
        count = max(len(oids), one.statement.values if one is not None else 0)
        if count > _MOST_VALUES:
            raise WireError(PROTOCOL, f"a statement has {_MOST_VALUES:,} values at most")
        if one is None or not count:
            return tuple(declared_type(oid, lambda: None) for oid in oids)
        statement = one.statement
        given = [*oids, *[0] * (count - len(oids))]
        if all(oid not in (0, 705) for oid in given):
            return tuple(declared_type(oid, lambda: None) for oid in given)
        inferred = ParameterTypes(statement, await self._executor.analysis.image())
        return tuple(
            declared_type(oid, lambda n=number: inferred.of(n))  # type: ignore[misc]  # a default is a parameter to the checker
            for number, oid in enumerate(given, 1)
        )


def _of_earlier(one: Classified) -> Classified:
    """Return a statement whose text the client has sent before: a place in it is none in what it sends now."""
    return replace(one, statement=replace(one.statement, offset=None))
