"""Carries out the statements of one connection.

What concerns the connection is done here, what reads the catalogs by the engine of the catalogs, and the rest by the
service, as for the HTTP door.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.language.statements.values import string_text
from penstock.pgwire.analysis import TEXTS, StatementAnalysis, line_name
from penstock.pgwire.catalog.declarations.control_tables import ControlReads, control_query
from penstock.pgwire.catalog.engine import CatalogEngine
from penstock.pgwire.catalog.translation.functions import SessionFacts
from penstock.pgwire.cursors import Cursors
from penstock.pgwire.door import PgDoor
from penstock.pgwire.protocol.errors import (
    CANCELLED,
    IN_TRANSACTION,
    TOO_LARGE,
    WireError,
    located,
    unsupported,
)
from penstock.pgwire.replies import (
    LineRows,
    RowColumn,
    RowSource,
    StreamRows,
    TableRows,
)
from penstock.pgwire.session_state import AFTER, KEY, SessionState, check_own
from penstock.pgwire.statements.bound import Values, cql_values, plain_values
from penstock.pgwire.statements.clauses import (
    Copy,
    CopyFrom,
    Reader,
    read_copy,
    read_declare,
    read_fetch,
    read_set,
)
from penstock.pgwire.statements.copied_rows import CopyTarget, copied_table, copy_target
from penstock.pgwire.statements.kinds import Classified, Does
from penstock.pgwire.statements.lexing import Statement
from penstock.pgwire.statements.prepare_clauses import read_discard
from penstock.pgwire.statements.script_texts import ReadScript, ScriptText, inserted_rows
from penstock.pgwire.statements.transactions import CopiedRows, PgTransaction, outside
from penstock.results.cancellation import Cancellation, cancelled
from penstock.server.roles import AccessRole, Caller
from penstock.server.service import RowsPosted, ScriptReply, ScriptRequest, StatementReply
from penstock.server.statements.listed_views import late_notice

T = TypeVar("T")

_UNFINISHED = frozenset({"PENDING", "HYDRATING"})


@dataclass
class PgOutcome:
    """What a statement has led to. tag: of its end; behind that of one with rows comes their number; target: of COPY
    FROM, whose lines are to come."""

    tag: str
    rows: RowSource | None = None
    copy: Copy | None = None
    target: CopyTarget | None = None


class Executor:
    """See the module. facts: of the connection, for functions."""

    def __init__(self, door: PgDoor, caller: Caller, facts: SessionFacts, state: SessionState) -> None:
        self._door, self._caller, self.state = door, caller, state
        self.cursors = Cursors(door.limits.rows)
        self._engine = CatalogEngine(facts, door.limits.rows, door.catalogs, door.answers)
        self.analysis = StatementAnalysis(door, caller, state, self._engine, self.cursors)
        #: Ends the statement that runs; whether it has taken too long.
        self._left = Cancellation()
        self._late = False
        self._has_left = False
        self._timer: asyncio.TimerHandle | None = None

    # -- for the connection ------------------------------------------------------------------------------------

    def cancel(self) -> None:
        """End the statement that runs, from any thread; a command happens all the same."""
        self._left.set()

    def leave(self) -> None:
        """Note that the client has left: what runs ends, and so does each statement that is still to come."""
        self._has_left = True
        self.cancel()

    @property
    def left(self) -> Cancellation:
        """Return what ends the statement that runs."""
        return self._left

    def interruption(self) -> PenstockError:
        """Return the error of a statement that has been ended."""
        if self._late:
            return WireError(CANCELLED, "the statement took longer than statement_timeout", code="P0725")
        return cancelled()

    def close(self) -> None:
        """End everything that belongs to the connection; in any thread."""
        self._left.set()
        self.cursors.close_all()

    def finished(self) -> None:
        """Note that a statement has ended, with all its rows."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- statements --------------------------------------------------------------------------------------------

    async def execute(self, one: Classified, values: Values = ()) -> PgOutcome:
        """Carry out a statement. Raises PenstockError, with its place in what the client sent."""
        if self.state.transaction is not None and one.does not in (Does.COMMITS, Does.ROLLS_BACK):
            self.state.transaction.check()
        try:
            return await self._timed(lambda: self._executed(one, values))
        except WireError as error:
            raise error.moved(one.statement.offset) from None
        except PenstockError as error:
            raise located(error, None) from None

    async def scripts(self, given: Sequence[tuple[Classified, Values]]) -> list[PgOutcome]:
        """Carry out statements of the language as one script, all of it or nothing. Raises WireError."""
        if any(one.does is Does.COMMANDS for one, _ in given):
            self.state.check_writes()
        script = await self.analysis.script([(one.statement, cql_values(values)) for one, values in given])
        reply = await self._timed(lambda: self._sent(script))
        pairs = zip(given, reply.statements, strict=True)
        return [self._outcome(each, one.statement) for (one, _), each in pairs]

    async def _timed(self, action: Callable[[], Awaitable[T]]) -> T:
        """Return what an action returns. It is cancelled after `statement_timeout`, and so are the rows of a SUBSCRIBE,
        until `finished`."""
        self.finished()
        left, self._late = Cancellation(), False
        self._left = left
        if self._has_left:
            left.set()

        def over() -> None:
            self._late = True
            left.set()

        seconds = self.state.variables.timeout
        self._timer = asyncio.get_running_loop().call_later(seconds, over) if seconds else None
        try:
            return await action()
        except PenstockError:
            if self._late:
                raise self.interruption() from None
            raise

    async def _executed(self, one: Classified, values: Values) -> PgOutcome:
        statement = one.statement
        if one.does is Does.LOOKS_UP:
            return await self._looked_up(one, values)
        if one.does is Does.READS:
            self.state.notice_pending(statement)
            (reply,) = (await self._sent(await self.analysis.script([(statement, cql_values(values))]))).statements
            return self._outcome(reply, statement)
        if one.does is Does.SUBSCRIBES:
            return PgOutcome("SUBSCRIBE", await self._stream(statement, values, self._left))
        if one.does is Does.COMMANDS:
            return await self._command(statement, values)
        if one.does is Does.COPIES:
            copy = read_copy(statement)
            if isinstance(copy, CopyFrom):
                return PgOutcome("COPY", target=await self._copy_target(copy))
            return PgOutcome("COPY", await self._rows_of(copy.query, values, self._left), copy)
        if one.does is Does.DECLARES:
            return await self._declare(statement, values)
        if one.does is Does.FETCHES:
            return PgOutcome("FETCH", await self.cursors.fetch(read_fetch(statement), self._left))
        if one.does is Does.SETS:
            await self._set(statement)
        elif one.does is Does.COMMITS:
            return PgOutcome(await self._commit())
        elif one.does is Does.SHOWS:
            return PgOutcome("SHOW", self.state.shown(statement))
        elif one.does is Does.DISCARDS:
            what = read_discard(statement)
            if what == "ALL":
                self._discard_all()
            return PgOutcome(f"DISCARD {what}")
        else:
            self._of_connection(one)
        return PgOutcome(one.does.value)

    def _discard_all(self) -> None:
        if self.state.transaction is not None:
            raise WireError(IN_TRANSACTION, "DISCARD ALL has to be outside of a transaction", code="P0732")
        self.cursors.close_all()
        self.state.discard()

    def _of_connection(self, one: Classified) -> None:
        statement = one.statement
        if one.does is Does.BEGINS:
            self.state.begin(statement)
        elif one.does is Does.ROLLS_BACK:
            if self.state.roll_back(statement):
                self.cursors.close_of_transaction()
        elif one.does in (Does.SAVES, Does.RELEASES):
            self.state.savepoint(statement, one.does is Does.RELEASES)
        elif one.does is Does.CLOSES:
            name = Reader(statement, 1).name()
            if name == "all":
                self.cursors.close_all()
            else:
                self.cursors.close(name)
        elif one.does is Does.RESETS:
            self.state.reset(statement)

    # -- what is read ------------------------------------------------------------------------------------------

    async def _looked_up(self, one: Classified, values: Values) -> PgOutcome:
        left = self._left
        control = await self._control(one.control)

        def answer() -> PgOutcome:
            tree, image = self.analysis.tree(one, plain_values(values))
            found = self._engine.answer(tree, image, left, control)
            pairs = zip(found.names, found.types, strict=True)
            return PgOutcome("SELECT", TableRows(found.rows, tuple(RowColumn(name, type_) for name, type_ in pairs)))

        return await self._door.call(answer)

    async def _control(self, reads: ControlReads) -> dict[str, pa.Table]:
        """Return the rows of control relations, all of one moment."""
        if not reads:
            return {}
        text = ";\n".join(control_query(table, columns) for table, columns in reads.items())
        replies = (await self._sent(await self.analysis.read(ScriptText(text)))).statements
        for reply in replies:
            self._check_rows(reply)
        return {table: reply.table for table, reply in zip(reads, replies, strict=True) if reply.table is not None}

    async def _stream(self, statement: Statement, values: Values, left: Cancellation) -> StreamRows:
        """Begin a subscription. left: ends it."""
        script = await self.analysis.script([(statement, cql_values(values))])
        self._door.open_stream()
        try:
            (reply,) = (await self._sent(script, left)).statements
            if reply.results is None:
                raise unsupported("the statement does not answer with rows that come")
        except BaseException:
            self._door.close_stream()
            raise
        door = self._door
        return StreamRows(
            reply.results, door.streaming, left, door.closing.is_set, door.close_stream, self.interruption
        )

    async def _rows_of(self, query: Statement, values: Values, left: Cancellation) -> RowSource:
        """Return the rows of a query inside of another statement."""
        one = await self.analysis.classified(query)
        if one.does is Does.SUBSCRIBES:
            return await self._stream(query, values, left)
        if one.does not in (Does.LOOKS_UP, Does.READS):
            message = "a SELECT or SUBSCRIBE is needed here"
            raise WireError("42601", message, offset=0, code="P0101").moved(query.offset)
        try:
            found = await self._executed(one, values)
        except WireError as error:
            raise error.moved(query.offset) from None
        assert found.rows is not None, "a query has rows"
        return found.rows

    # -- what changes ------------------------------------------------------------------------------------------

    async def _command(self, statement: Statement, values: Values) -> PgOutcome:
        self.state.check_writes()
        transaction = self.state.transaction
        given = statement, cql_values(values)
        if transaction is None:
            (reply,) = (await self._sent(await self.analysis.script([given]))).statements
            return self._outcome(reply, statement)
        transaction.check_command()
        script = await self.analysis.script([given], transaction.commands)
        self._door.limits.check_script(script.text)
        reply = (await self.analysis.checked(script)).statements[-1]
        transaction.commands.append(script.command)
        return self._outcome(reply, statement)

    async def _commit(self) -> str:
        """End the transaction; return the tag. Raises PenstockError where its commands cannot happen."""
        done = self.state.end()
        if done is None:
            return "COMMIT"
        self.cursors.close_of_transaction()
        if done.is_failed:
            done.undone()
            return "ROLLBACK"
        try:
            if done.commands:
                await self._sent(await self.analysis.script([], done.commands))
            if done.copied:
                await self._post(done.copied[0].source, [one.rows for one in done.copied])
        except PenstockError:
            done.undone()
            raise
        return "COMMIT"

    async def _copy_target(self, copy: CopyFrom) -> CopyTarget:
        """Return where the rows of COPY FROM go. Raises PenstockError."""
        self.state.check_writes()
        self._caller.need(AccessRole.CONTROL, "for COPY FROM")
        transaction = self.state.transaction or PgTransaction()
        most = self._door.limits.body_bytes - sum(one.size for one in transaction.copied)
        service = self._door.service
        target = await self._door.call(lambda: copy_target(copy, service.declaration(copy.name), most))
        transaction.check_copy(target.source.name)
        return target

    async def copied(self, target: CopyTarget, data: bytes) -> int:
        """Add the rows of COPY FROM; return their number. They are durable then, or wait for COMMIT in a transaction.
        Raises PenstockError, and nothing is added."""
        rows = await self._door.call(lambda: copied_table(target, data))
        if self.state.transaction is None:
            await self._post(target.source.name, [rows])
        else:
            self.state.transaction.copied.append(CopiedRows(target.source.name, rows, len(data)))
        return int(rows.num_rows)

    async def _post(self, source: str, parts: Sequence[pa.Table]) -> None:
        self._door.count_script(self._caller.name)
        key, service, caller = self.state.settings.get(KEY), self._door.service, self._caller

        def post() -> RowsPosted:
            rows = pa.concat_tables(parts).combine_chunks()
            name = None if key is None else "pg-" + _digest(f"COPY {key}\0{source}\0", rows)
            return service.post(source, rows, name, caller)

        posted = await self._door.call(post)
        self.state.position = posted.position
        late = [late_notice(source, posted.rows, posted.late)] if posted.late else []
        for notice in (*posted.notices, *late):
            self.state.notice("NOTICE", notice.message, notice.hint)

    async def _set(self, statement: Statement) -> None:
        setting = read_set(statement)
        if setting is None:
            self.state.set_modes(statement)
            return
        name = setting.name.lower()
        if not self.state.knows(name) and setting.value is not None:
            # The service knows which settings the language has, and what they take.
            check_own(setting.name)
            text = f"SET {setting.name} = {string_text(setting.value)}"
            await self._sent(await self.analysis.read(ScriptText(text)))
        self.state.set(setting)

    async def _declare(self, statement: Statement, values: Values) -> PgOutcome:
        declared = read_declare(statement)
        if self.state.transaction is None and not declared.holds:
            raise outside("a cursor without HOLD")
        self.cursors.check_new(declared.name)
        left = Cancellation()
        rows = await self._rows_of(declared.query, values, left)
        self.cursors.add(declared.name, rows, declared.holds, left)
        return PgOutcome("DECLARE CURSOR")

    # -- the service -------------------------------------------------------------------------------------------

    async def _sent(self, script: ReadScript, left: Cancellation | None = None) -> ScriptReply:
        """Have the service execute a script. Raises WireError with its place in what the client sent."""
        self._door.limits.check_script(script.text)
        key = self.state.settings.get(KEY)
        if key is not None:
            key = "pg-" + hashlib.sha256(f"{key}\0{script.text}".encode()).hexdigest()
        self._door.count_script(self._caller.name)
        request = ScriptRequest(
            script.script,
            self._caller,
            key,
            settings=self.analysis.settings(),
            left=left or self._left,
            after=self.state.settings.get(AFTER),
        )
        try:
            reply = await self._door.call(lambda: self._door.service.execute(request))
        except PenstockError as error:
            raise script.written.error(error) from None
        for warning in reply.warnings:
            self.state.notice("WARNING", warning.message, warning.hint)
        failed = next((one.error for one in reply.statements if one.error is not None), None)
        if failed is not None:
            raise script.written.error(failed)
        return reply

    def _outcome(self, reply: StatementReply, statement: Statement) -> PgOutcome:
        """Return what a statement of the language has led to. Raises WireError P0804 for too many rows."""
        for notice in reply.notices:
            self.state.notice("NOTICE", notice.message, notice.hint)
        first = statement.words(1)[0]
        if reply.text is not None and first in TEXTS:
            return PgOutcome(first, LineRows(line_name(statement), reply.text.splitlines()))
        if reply.table is not None:
            self._check_rows(reply)
            return PgOutcome("SELECT", TableRows(reply.table))
        if reply.state in _UNFINISHED:
            text = f"command {reply.number} is {reply.state}; SHOW COMMANDS has its outcome"
            self.state.notice("NOTICE", text, None)
        self.state.position = reply.position or self.state.position
        if reply.kind == "INSERT":
            return PgOutcome(f"INSERT 0 {inserted_rows(statement) if reply.changed is None else reply.changed}")
        return PgOutcome(reply.kind if reply.changed is None else f"{reply.kind} {reply.changed}")

    def _check_rows(self, reply: StatementReply) -> None:
        most = self._door.limits.rows
        if reply.table is not None and reply.table.num_rows > most:
            message = f"the answer has {reply.table.num_rows:,} rows, the server returns {most:,}: max_result_rows"
            raise WireError(TOO_LARGE, message, "add a LIMIT, or aggregate", code="P0804")


def _digest(text: str, rows: pa.Table) -> str:
    """Return a digest of a text and rows."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return hashlib.sha256(text.encode() + sink.getvalue()).hexdigest()
