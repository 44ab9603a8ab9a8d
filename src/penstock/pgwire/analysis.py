"""What is found of a statement before it is carried out: what it does, its columns, and what is wrong with it whatever
its values are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlglot import exp

from penstock.errors import PenstockError, ScriptErrors
from penstock.language.limits import MAX_STATEMENTS, too_many
from penstock.language.statements.script import Script
from penstock.language.statements.values import WrittenValue
from penstock.pgwire.catalog.declarations.declared import CatalogImage
from penstock.pgwire.catalog.engine import CatalogEngine
from penstock.pgwire.cursors import Cursors
from penstock.pgwire.door import PgDoor
from penstock.pgwire.protocol.errors import WireError
from penstock.pgwire.replies import RowColumn, columns_of, text_columns
from penstock.pgwire.session_state import OWN, SessionState
from penstock.pgwire.statements.bound import null_of, with_plain_values
from penstock.pgwire.statements.clauses import read_copy, read_declare, read_fetch
from penstock.pgwire.statements.kinds import Classified, Does, classify
from penstock.pgwire.statements.lexing import Statement
from penstock.pgwire.statements.parameters import literal, sample
from penstock.pgwire.statements.prepare_clauses import read_execute, read_prepare
from penstock.pgwire.statements.script_texts import (
    Given,
    ReadScript,
    ScriptText,
    WrittenCommand,
    script_text,
    script_with_values,
)
from penstock.pgwire.values.wire_types import WireType
from penstock.server.roles import Caller
from penstock.server.service import ScriptReply, ScriptRequest
from penstock.server.statements.parsing import SMALL

#: Statements of the language whose answer is text.
TEXTS = frozenset({"SHOW", "EXPLAIN", "EXPORT", "DESCRIBE"})
#: Commands that PostgreSQL analyses when it parses them; it reads others alone.
_ANALYSED = frozenset({"INSERT", "UPDATE", "DELETE"})
#: Errors that depend on nothing but a statement and what is declared: syntax, and names and types.
_OF_SYNTAX, _OF_NAMES = "P01", ("P01", "P02", "P03")
#: The error of rows whose primary key does not fit, which depends on the values.
_OF_KEYS = "P0210"
_READERS: dict[Does, Callable[[Statement], object]] = {
    Does.COPIES: read_copy,
    Does.FETCHES: read_fetch,
    Does.PREPARES: read_prepare,
    Does.EXECUTES: read_execute,
}


class StatementAnalysis:
    """See the module."""

    def __init__(
        self, door: PgDoor, caller: Caller, state: SessionState, engine: CatalogEngine, cursors: Cursors
    ) -> None:
        self._door, self._caller, self._state, self._engine, self._cursors = door, caller, state, engine, cursors
        #: The scripts that were parsed last, by text: a statement is checked, described and carried out one after the
        #: other, and one that is prepared again and again.
        self._parsed: dict[str, Script | ScriptErrors] = {}

    # -- what PostgreSQL finds when it parses a statement --------------------------------------------------------

    def version(self) -> object:
        """Return an object that is the same one as long as nothing is declared, changed or dropped."""
        return self._door.service.catalog_version()

    async def check(self, one: Classified, types: Sequence[WireType]) -> None:
        """Raise PenstockError, with its place in what the client sent, for what is wrong with a statement whatever
        its values are: in a transaction that has failed all but its end; errors of syntax; for those that read or
        change rows names and types too. types: of the values."""
        transaction = self._state.transaction
        if transaction is not None and one.does not in (Does.COMMITS, Does.ROLLS_BACK):
            transaction.check()
        statement = one.statement
        try:
            if one.does is Does.COMMANDS:
                await self._check_command(statement, types)
            elif one.does is Does.DECLARES:
                await self._check_cursor(read_declare(statement).query, types)
            elif one.does is Does.READS and statement.words(1)[0] == "EXPLAIN":
                await self._check_script(statement, types, _OF_NAMES)
            elif (read := _READERS.get(one.does)) is not None:
                read(statement)
        except WireError as error:
            raise error.moved(statement.offset) from None

    async def _check_cursor(self, query: Statement, types: Sequence[WireType]) -> None:
        one = await self.classified(query)
        if one.has_rows:
            await self.columns(one, types)

    async def _check_command(self, statement: Statement, types: Sequence[WireType]) -> None:
        if statement.words(1)[0] in _ANALYSED:
            await self._check_script(statement, types, _OF_NAMES)
            return
        await self.script([(statement, [literal(None, one) for one in types])])

    async def _check_script(self, statement: Statement, types: Sequence[WireType], families: tuple[str, ...]) -> None:
        """Raise the error of a statement if it is of one of some families and comes whatever the values are."""
        transaction = self._state.transaction
        before = () if transaction is None else transaction.commands
        error: WireError | None = None
        for values in ([literal(None, one) for one in types], [sample(one) for one in types]):
            try:
                await self.checked(await self.script([(statement, values)], before))
                return
            except WireError as found:
                if found.code == _OF_KEYS and types and statement.words(1)[0] == "INSERT":
                    return
                error = found
        if error is not None and error.code.startswith(families):
            raise error

    # -- what a statement does, and its columns ------------------------------------------------------------------

    async def classified(self, statement: Statement) -> Classified:
        """Return what a statement does. Raises WireError."""
        try:
            one = await self._door.call(lambda: classify(statement, self._door.names, self._state.knows))
            if one.does is Does.READS and statement.words(1) == ("SHOW",):
                self._state.check_shown(statement)
            return one
        except WireError as error:
            raise error.moved(statement.offset) from None

    async def image(self) -> CatalogImage:
        """Return the catalogs of what is declared now."""
        return await self._door.call(self._door.image)

    def tree(self, one: Classified, value_of: Callable[[int], exp.Expr]) -> tuple[exp.Expr, CatalogImage | None]:
        """Return the tree of a query over the catalogs with its values, and the catalogs where it reads them."""
        assert one.tree is not None, "it is one over the catalogs"
        tree = with_plain_values(one.tree, value_of) if one.statement.values else one.tree
        reads = one.reads_tables or any("reg" in token.text.lower() for token in one.statement.tokens)
        reads = reads or any(
            token.text.lower().startswith(("pg_", "to_", "col_", "obj_", "format_", "oidv"))
            for token in one.statement.tokens
        )
        return tree, self._door.image() if reads else None

    async def columns(self, one: Classified, types: Sequence[WireType]) -> tuple[RowColumn, ...] | None:
        """Return the columns of a statement that is not carried out yet; None for one without rows. Raises
        PenstockError."""
        statement = one.statement
        if not one.has_rows:
            return None
        if one.does is Does.LOOKS_UP:
            return await self._door.call(lambda: self._columns_of_catalogs(one, types))
        if one.does is Does.SHOWS:
            return self._state.shown(statement).columns
        if one.does is Does.FETCHES:
            return self._cursors.known_columns(read_fetch(statement).name)
        if statement.words(1)[0] in TEXTS:
            return text_columns(line_name(statement))
        try:
            return await self._columns_of(statement, [literal(None, type_) for type_ in types])
        except PenstockError:
            if not types:
                raise
            # Some clauses take no NULL, such as LIMIT.
            return await self._columns_of(statement, [sample(type_) for type_ in types])

    def _columns_of_catalogs(self, one: Classified, types: Sequence[WireType]) -> tuple[RowColumn, ...]:
        tree, _ = self.tree(one, lambda number: null_of(types[number - 1]) if number <= len(types) else exp.Null())
        names, types = self._engine.columns(tree)
        return tuple(RowColumn(name, type_) for name, type_ in zip(names, types, strict=True))

    async def _columns_of(self, statement: Statement, values: Sequence[WrittenValue]) -> tuple[RowColumn, ...] | None:
        reply = (await self.checked(await self.script([(statement, values)]))).statements[-1]
        return None if reply.schema is None else columns_of(reply.schema)

    # -- scripts of the language ---------------------------------------------------------------------------------

    async def script(self, given: Sequence[Given], before: Sequence[WrittenCommand] = ()) -> ReadScript:
        """Return statements as one script, parsed and with its values. before: commands that it begins with. Raises
        WireError with its place in what the client sent."""
        made = await self._door.call(lambda: script_text(given, self._door.names, before))
        if not any(statement.values for statement, _ in given):
            return await self.read(made)
        try:
            read = await self.read(made)
            with_values = await self._door.call(lambda: script_with_values(read.rest, given))
            if with_values is not None:
                return replace(read, rest=with_values)
        except WireError as error:
            if not error.code.startswith(_OF_SYNTAX):
                raise
        # A value stands where a literal is part of a clause, such as the length of a window; or the error has it.
        made = await self._door.call(lambda: script_text(given, self._door.names, before, spliced=True))
        return await self.read(made)

    async def read(self, written: ScriptText) -> ReadScript:
        """Return a script, parsed once where its text is one of the last ones. Raises WireError with its place in what
        the client sent."""
        text = written.rest
        found = self._parsed.pop(text, None)
        if len(written.before) > MAX_STATEMENTS:
            raise written.error(PenstockError("P0105", too_many(len(written.before), MAX_STATEMENTS)))
        if found is None:
            try:
                found = await self._door.parsed(text)
            except ScriptErrors as error:
                found = error
            except PenstockError as error:
                raise written.error(error) from None
        if len(text) <= SMALL:
            self._parsed[text] = found
            while sum(map(len, self._parsed)) > SMALL:
                self._parsed.pop(next(iter(self._parsed)))
        if isinstance(found, ScriptErrors):
            raise written.error(found)
        return ReadScript(written, found)

    async def checked(self, read: ReadScript) -> ScriptReply:
        """Have the service check a script. Raises WireError with its place in what the client sent."""
        request = ScriptRequest(read.script, self._caller, dry=True, settings=self.settings())
        try:
            return await self._door.call(lambda: self._door.service.execute(request))
        except PenstockError as error:
            raise read.written.error(error) from None

    def settings(self) -> dict[str, str]:
        return {name: value for name, value in self._state.settings.items() if name not in OWN}


def line_name(statement: Statement) -> str:
    """Return the column of an answer that is text."""
    first = statement.words(1)[0]
    return "QUERY PLAN" if first == "EXPLAIN" else first
