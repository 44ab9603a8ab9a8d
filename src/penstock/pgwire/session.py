"""The conversation behind the login: simple queries, and statements that are parsed, bound and executed.

Messages are read ahead, up to a bound, so that a client that leaves is noticed while its statement runs. An error ends
its statement; after one in the extended protocol all messages up to the next Sync are skipped.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.errors import PenstockError, log_internal
from penstock.pgwire import copying
from penstock.pgwire.door import PgDoor
from penstock.pgwire.executor import Executor, PgOutcome
from penstock.pgwire.prepared import Prepared, PreparedStatements
from penstock.pgwire.protocol import messages
from penstock.pgwire.protocol.errors import (
    CANCELLED,
    NO_CURSOR,
    PROTOCOL,
    SYNTAX,
    TOO_LARGE,
    Fatal,
    WireError,
    error_fields,
    notice_fields,
    unsupported,
)
from penstock.pgwire.protocol.messages import Fields, Message
from penstock.pgwire.replies import data_rows, description, spread
from penstock.pgwire.statements.bound import Values
from penstock.pgwire.statements.copied_rows import CopyTarget
from penstock.pgwire.statements.kinds import Classified, Does
from penstock.pgwire.statements.lexing import Statement, statements
from penstock.pgwire.statements.parameters import Value, read_value
from penstock.pgwire.statements.variables import Variables
from penstock.pgwire.values.wire_types import WireType

#: Bytes that are written before the client is waited for, and bytes of messages that are read ahead.
_WRITTEN, _AHEAD = 65_536, 1 << 20
#: Portals that a connection may have open.
_MOST = 10_000


@dataclass
class _Portal:
    """A statement with its values. outcome: once it has been carried out; count: rows that were sent."""

    prepared: Prepared
    values: list[tuple[Value, WireType]]
    formats: list[int]
    outcome: PgOutcome | None = None
    count: int = 0
    done: bool = False


class Conversation:
    """A connection that has logged in."""

    def __init__(
        self,
        door: PgDoor,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        executor: Executor,
        variables: Variables,
    ) -> None:
        self._door, self._reader, self._writer = door, reader, writer
        self._executor, self._variables = executor, variables
        self._out = bytearray()
        self._prepared = PreparedStatements(executor)
        self._portals: dict[str, _Portal] = {}
        self._skipping = False
        #: None wakes up a COPY whose statement has been cancelled.
        self._queue: asyncio.Queue[Message | Exception | None] = asyncio.Queue()
        self._copying = False
        self._ahead = 0
        self._room = asyncio.Event()
        self._reported = variables.reported()

    # -- reading and writing -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until the client leaves. Raises Fatal."""
        reading = asyncio.create_task(self._read())
        try:
            self._ready()
            await self._flush()
            while True:
                message = await self._next()
                if message.kind == "X":
                    return
                await self._handled(message)
        except EOFError:
            return
        finally:
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading

    async def _next(self) -> Message:
        """Return the next message. Raises EOFError, Fatal, and in a COPY PenstockError where that is cancelled."""
        while True:
            message = await self._queue.get()
            if isinstance(message, Exception):
                raise message
            if message is not None:
                self._ahead -= len(message.body)
                self._room.set()
                return message
            if self._copying:
                raise self._executor.interruption()

    def _most_of(self, kind: str) -> int:
        """Return how many bytes a message may have: lines of a COPY as many as posted rows."""
        limits = self._door.limits
        return limits.body_bytes if kind == "d" and self._copying else 2 * limits.statement_bytes + 65_536

    async def _read(self) -> None:
        try:
            while True:
                while self._ahead > _AHEAD:
                    self._room.clear()
                    await self._room.wait()
                message = await messages.read_message(self._reader, self._most_of)
                self._ahead += len(message.body)
                self._queue.put_nowait(message)
        except (EOFError, OSError):
            # The client has left: no answer is sent any more; accepted commands are executed.
            self._executor.leave()
            self._queue.put_nowait(EOFError())
        except PenstockError as error:
            self._executor.leave()
            self._queue.put_nowait(error)

    async def _send(self, data: bytes) -> None:
        self._out += data
        if len(self._out) >= _WRITTEN:
            await self._flush()

    async def _flush(self) -> None:
        """Write what there is, and wait until the client has taken most of it."""
        if self._writer.is_closing():
            raise EOFError
        if self._out:
            self._writer.write(bytes(self._out))
            self._out.clear()
        try:
            await self._writer.drain()
        except OSError:
            raise EOFError from None

    def notice(self, severity: str, text: str, hint: str | None = None) -> None:
        """Send a notice to the client beside the answer."""
        if self._variables.sends(severity):
            self._out += messages.problem("N", notice_fields(text, severity, hint))

    def _ready(self) -> None:
        transaction = self._executor.state.transaction
        reported = self._variables.reported()
        for name, value in reported.items():
            if self._reported[name] != value:
                self._out += messages.parameter_status(name, value)
        self._reported = reported
        self._out += messages.ready("I" if transaction is None else transaction.state)

    # -- messages ----------------------------------------------------------------------------------------------

    async def _handled(self, message: Message) -> None:
        if self._skipping and message.kind not in "SQ":
            return
        try:
            if message.left_out and message.kind != "d":
                text = f"a message has {message.left_out:,} bytes, which is more than the server reads"
                raise WireError(TOO_LARGE, text, "its max_statement_bytes bounds them", code="P0804")
            await self._carried_out(message)
            if message.kind in "QS":
                self._executor.finished()
        except Fatal:
            raise
        except PenstockError as error:
            await self._failed(error, message.kind)
        except (EOFError, asyncio.CancelledError):
            raise
        except Exception as error:
            reference = log_internal(error, "a statement of PostgreSQL's protocol failed")
            reason = f"the server failed: {type(error).__name__} (reference {reference})"
            known = WireError("XX000", reason, "its log has more under this reference", code="P0601")
            await self._failed(known, message.kind)

    async def _carried_out(self, message: Message) -> None:
        fields = Fields(message.body)
        if message.kind == "Q":
            await self._simple(fields)
        elif message.kind == "P":
            await self._parse(fields)
        elif message.kind == "B":
            await self._bind(fields)
        elif message.kind == "D":
            await self._describe(fields)
        elif message.kind == "E":
            await self._execute(fields)
        elif message.kind == "C":
            self._close(fields)
        elif message.kind == "S":
            self._skipping = False
            if self._executor.state.transaction is None:
                self._end_portals()
            self._ready()
            await self._flush()
        elif message.kind == "H":
            await self._flush()
        elif message.kind in "dcf":
            # Rows of a COPY that was refused may still be on their way.
            return
        elif message.kind == "F":
            raise unsupported("calls of functions by their oid are not supported", "SELECT calls functions")
        else:
            raise Fatal(PROTOCOL, f"there is no message of the kind {message.kind!r}")

    async def _failed(self, error: PenstockError, kind: str) -> None:
        self._executor.state.explain(error)
        self._executor.state.fail()
        self._executor.finished()
        self._out += messages.problem("E", error_fields(error))
        if kind == "Q":
            self._skipping = False
            self._ready()
        else:
            self._skipping = True
        await self._flush()

    # -- simple queries ----------------------------------------------------------------------------------------

    async def _simple(self, fields: Fields) -> None:
        self._skipping = False
        text = fields.text()
        fields.end()
        self._door.limits.check_script(text)
        self._portals.pop("", None)
        found = statements(text)
        if not found:
            self._out += messages.EMPTY
        at = 0
        while at < len(found):
            at += await self._next_of(found[at:])
        self._ready()
        await self._flush()

    async def _next_of(self, found: Sequence[Statement]) -> int:
        """Carry out the first of some statements, with those behind it that are one script with it; return how many
        these are."""
        one, values = self._resolved(await self._executor.analysis.classified(found[0]))
        run = [(one, values)]
        if one.does in (Does.READS, Does.COMMANDS) and self._executor.state.transaction is None:
            for following in found[1:]:
                other, values = self._resolved(await self._executor.analysis.classified(following))
                if other.does not in (Does.READS, Does.COMMANDS):
                    break
                run.append((other, values))
        outcomes = [await self._carried(*run[0])] if len(run) == 1 else await self._executor.scripts(run)
        for (one, _), outcome in zip(run, outcomes, strict=True):
            await self._whole(one, outcome)
        return len(run)

    def _resolved(self, one: Classified, values: Values = ()) -> tuple[Classified, Values]:
        """Return what is to be carried out in place of a statement (`PreparedStatements.resolved`)."""
        if one.does is Does.EXECUTES and self._executor.state.transaction is not None:
            self._executor.state.transaction.check()
        return self._prepared.resolved(one, values)

    async def _carried(self, one: Classified, values: Values) -> PgOutcome:
        """Carry out a statement that is resolved, and what it does to prepared statements. Raises PenstockError."""
        outcome = await self._executor.execute(one, values)
        try:
            if one.does is Does.PREPARES:
                await self._prepared.prepare(one.statement)
            elif one.does is Does.DEALLOCATES:
                self._prepared.deallocate(one.statement)
        except WireError as error:
            raise error.moved(one.statement.offset) from None
        if one.does is Does.DISCARDS and outcome.tag == "DISCARD ALL":
            self._prepared.clear()
        return outcome

    async def _whole(self, one: Classified, outcome: PgOutcome) -> None:
        """Send all that a statement has led to."""
        rows = outcome.rows
        if outcome.target is not None:
            count = await self._executor.copied(outcome.target, await self._lines(outcome.target))
            await self._send(messages.complete(f"{outcome.tag} {count}"))
            return
        if rows is None:
            await self._send(messages.complete(outcome.tag))
            return
        count = 0
        try:
            copy = outcome.copy
            formats = [False] * len(rows.columns)
            await self._send(description(rows.columns) if copy is None else copying.head(copy, rows.columns))
            while True:
                # Rows that come are sent as they come.
                batch = await rows.next(1 << 30, wait=False)
                if batch is not None and not batch.num_rows:
                    await self._flush()
                    batch = await rows.next(1 << 30)
                if batch is None:
                    break
                made = (
                    data_rows(batch, rows.columns, formats)
                    if copy is None
                    else copying.rows(copy, batch, rows.columns, not count)
                )
                for row in made:
                    await self._send(row)
                count += batch.num_rows
            if copy is not None:
                await self._send(copying.tail(copy, not count))
        finally:
            rows.close()
        await self._send(messages.complete(f"{outcome.tag} {count}"))

    async def _lines(self, target: CopyTarget) -> bytes:
        """Return all lines that the client sends for COPY FROM. Raises WireError 57014 where it takes them back, 54000
        for too many bytes, 08P01 for another message."""
        loop = asyncio.get_running_loop()
        data = bytearray()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._queue.put_nowait, None)

        self._copying = True
        try:
            await self._send(messages.copy_in(len(target.positions)))
            await self._flush()
            with self._executor.left.ending(wake):
                while (message := await self._next()).kind != "c":
                    if message.kind == "d":
                        if message.left_out or len(data) + len(message.body) > target.most:
                            text = "COPY FROM has more bytes than the server's max_body_bytes"
                            raise WireError(TOO_LARGE, text, "send the rows in several parts", code="P0804")
                        data += message.body
                    elif message.kind == "f":
                        reason = Fields(message.body).text()[:1_000]
                        raise WireError(CANCELLED, f"the client has ended COPY FROM: {reason}", code="P0726")
                    elif message.kind == "X":
                        raise EOFError
                    elif message.kind not in "HS":
                        text = f"a message of the kind {message.kind!r} in the lines of COPY FROM"
                        raise WireError(PROTOCOL, text, "CopyDone or CopyFail ends them")
        finally:
            self._copying = False
        return bytes(data)

    # -- the extended protocol ---------------------------------------------------------------------------------

    async def _parse(self, fields: Fields) -> None:
        name, text = fields.text(), fields.text()
        oids = [fields.int32() & 0xFFFFFFFF for _ in range(fields.count())]
        fields.end()
        self._door.limits.check_script(text)
        found = statements(text)
        if len(found) > 1:
            raise WireError(SYNTAX, "a statement that is prepared stands alone", code="P0101", offset=found[1].offset)
        await self._prepared.parse(name, found[0] if found else None, oids)
        await self._send(messages.PARSE_COMPLETE)

    async def _bind(self, fields: Fields) -> None:
        name, source = fields.text(), fields.text()
        prepared = self._prepared.named(source)
        forms = [fields.int16() for _ in range(fields.count())]
        raw = [fields.value() for _ in range(fields.count())]
        results = [fields.int16() for _ in range(fields.count())]
        fields.end()
        if len(raw) != len(prepared.types):
            message = f"{len(raw)} values for a statement with {len(prepared.types)}"
            raise WireError(PROTOCOL, message)
        formats = spread(forms, len(raw))
        values = [
            (read_value(one, type_, binary, number), type_)
            for number, (one, type_, binary) in enumerate(zip(raw, prepared.types, formats, strict=True), 1)
        ]
        if name and name in self._portals:
            raise WireError("42P03", f"there is a portal {name} already", "close it first", code="P0206")
        if len(self._portals) >= _MOST:
            raise WireError(TOO_LARGE, f"a connection has {_MOST:,} portals at most", code="P0804")
        await self._prepared.check(prepared)
        self._drop(name)
        self._portals[name] = _Portal(prepared, values, results)
        await self._send(messages.BIND_COMPLETE)

    async def _describe(self, fields: Fields) -> None:
        kind, name = fields.named_object()
        if kind == b"S":
            prepared = self._prepared.named(name)
            if prepared.one is not None and prepared.one.does is Does.EXECUTES:
                self._resolved(prepared.one)
            await self._send(messages.parameter_description([one.oid for one in prepared.types]))
            columns = await self._prepared.describe(prepared)
            await self._send(messages.NO_DATA if columns is None else description(columns))
            return
        if name not in self._portals and (cursor := self._executor.cursors.columns(name)) is not None:
            # What DECLARE has made is a portal, too.
            await self._send(description(cursor))
            return
        portal = self._portal(name)
        one = portal.prepared.one
        if one is None or not self._resolved(one)[0].has_rows:
            await self._send(messages.NO_DATA)
            return
        outcome = await self._begun(portal, one)
        if outcome.rows is None:
            await self._send(messages.NO_DATA)
        else:
            columns = outcome.rows.columns
            await self._send(description(columns, spread(portal.formats, len(columns))))

    async def _begun(self, portal: _Portal, one: Classified) -> PgOutcome:
        """Carry the statement of a portal out, once."""
        if portal.outcome is None:
            portal.outcome = await self._carried(*self._resolved(one, portal.values))
        return portal.outcome

    async def _execute(self, fields: Fields) -> None:
        portal = self._portal(fields.text())
        most = fields.int32()
        fields.end()
        one = portal.prepared.one
        if one is None:
            await self._send(messages.EMPTY)
            return
        outcome = await self._begun(portal, one)
        if outcome.copy is not None or (outcome.target is not None and not portal.done):
            portal.done = True
            await self._whole(one, outcome)
            return
        if outcome.rows is None:
            if portal.done:
                raise WireError("55000", "the portal has been executed", code="P0732")
            portal.done = True
            await self._send(messages.complete(outcome.tag))
            return
        await self._some(portal, outcome, most)

    async def _some(self, portal: _Portal, outcome: PgOutcome, most: int) -> None:
        """Send the next rows of a portal. most: 0 for all."""
        rows = outcome.rows
        assert rows is not None, "it has rows"
        formats = spread(portal.formats, len(rows.columns))
        sent = 0
        while not portal.done:
            if most > 0 and sent >= most:
                await self._send(messages.SUSPENDED)
                return
            batch = await rows.next(most - sent if most > 0 else 1 << 30, wait=False)
            if batch is not None and not batch.num_rows:
                await self._flush()
                batch = await rows.next(most - sent if most > 0 else 1 << 30)
            if batch is None:
                portal.done = True
                rows.close()
                break
            for row in data_rows(batch, rows.columns, formats):
                await self._send(row)
            sent += batch.num_rows
            portal.count += batch.num_rows
        await self._send(messages.complete(f"{outcome.tag} {sent}"))

    def _close(self, fields: Fields) -> None:
        kind, name = fields.named_object()
        if kind == b"S":
            self._prepared.forget(name)
        else:
            self._drop(name)
        self._out += messages.CLOSE_COMPLETE

    def _portal(self, name: str) -> _Portal:
        if name not in self._portals:
            raise WireError(NO_CURSOR, f"there is no portal {name!r}", code="P0201")
        return self._portals[name]

    def _drop(self, name: str) -> None:
        portal = self._portals.pop(name, None)
        if portal is not None and portal.outcome is not None and portal.outcome.rows is not None:
            portal.outcome.rows.close()

    def _end_portals(self) -> None:
        for name in list(self._portals):
            self._drop(name)

    def close(self) -> None:
        self._end_portals()
