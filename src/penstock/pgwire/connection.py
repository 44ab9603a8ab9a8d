"""A connection from its first message to its end: TLS, the login, and then the conversation (`session.py`)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import secrets
import ssl
import struct
import time
from collections.abc import Mapping

from penstock.control.entities.system import SessionFact
from penstock.errors import PenstockError
from penstock.events import log_event, logger_of
from penstock.pgwire.catalog.declarations.declared import DATABASE
from penstock.pgwire.door import PgDoor
from penstock.pgwire.executor import Executor
from penstock.pgwire.protocol import messages
from penstock.pgwire.protocol.errors import (
    NO_LOGIN,
    PROTOCOL,
    SHUTDOWN,
    TOO_MANY,
    UNSUPPORTED,
    Fatal,
    WireError,
    error_fields,
    notice_fields,
)
from penstock.pgwire.protocol.messages import Fields
from penstock.pgwire.protocol.scram import BOUND, MECHANISM, ScramExchange, Verifier
from penstock.pgwire.protocol.tls import DoorTls
from penstock.pgwire.session import Conversation
from penstock.pgwire.session_state import SessionState
from penstock.pgwire.statements.variables import Variables
from penstock.server.attempts import BEFORE_LOGIN
from penstock.server.roles import ANYONE, AccessRole, Caller
from penstock.server.tokens import TokenEntry

_LOG = logger_of("server")
#: Names of databases that are taken for the one that there is.
_DATABASES = frozenset({DATABASE, "postgres"})
_SASL, _CONTINUE, _FINAL = 10, 11, 12


class PgConnection:
    """One client. tls: None where the server has no certificate; address: of the client."""

    def __init__(
        self,
        door: PgDoor,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        tls: DoorTls | None,
        address: str,
    ) -> None:
        self._door, self._reader, self._writer, self._tls = door, reader, writer, tls
        self.secret = secrets.randbits(32)
        self.number = 0
        self.user = ""
        self.can_write = False
        self._secure = False
        #: What is listed of it once its user is known.
        self.session: SessionFact | None = None
        self._executor: Executor | None = None
        self._session: Conversation | None = None
        self._variables = Variables("", lambda text: None)
        self._address = address
        #: What the client is to know of the settings with which it begins.
        self._warnings: list[str] = []

    # -- facts for functions -----------------------------------------------------------------------------------

    @property
    def backend(self) -> int:
        return self.number

    def setting(self, name: str) -> str | None:
        return self._variables.get(name)

    def settings(self) -> Mapping[str, str]:
        return self._variables.all()

    def set(self, name: str, value: str) -> str:
        return self._variables.set(name, value)

    # -- its life ----------------------------------------------------------------------------------------------

    def cancel(self) -> None:
        """Cancel what runs; called by another connection."""
        if self._executor is not None:
            self._executor.cancel()

    def drop(self) -> None:
        """Close the connection of a client that has not logged in."""
        self._writer.close()

    async def serve(self) -> None:
        """Serve the client until it leaves."""
        try:
            async with asyncio.timeout(BEFORE_LOGIN):
                caller = await self._begun()
            if caller is not None:
                await self._conversed(caller)
        except TimeoutError:
            await self._refused(Fatal(PROTOCOL, f"the login took longer than {BEFORE_LOGIN:g} seconds"))
        except EOFError:
            return
        except PenstockError as error:
            fatal = (
                error
                if isinstance(error, Fatal)
                else Fatal(
                    error.state if isinstance(error, WireError) else PROTOCOL,
                    error.message,
                    error.hint,
                    code=error.code,
                )
            )
            await self._refused(fatal)
        except (OSError, ssl.SSLError):
            return
        except asyncio.CancelledError:
            await self._refused(Fatal(SHUTDOWN, "the server ends", code="P0601"))
            raise
        finally:
            self._door.end(self.number)
            if self._session is not None:
                self._session.close()
            if self._executor is not None:
                # Ending a query that only a subscription reads may take as long as a batch.
                executor = self._executor
                executor.finished()
                with contextlib.suppress(RuntimeError):
                    await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, executor.close))
            self._writer.close()

    async def _refused(self, error: Fatal) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            self._writer.write(messages.problem("E", error_fields(error)))
            async with asyncio.timeout(1):
                await self._writer.drain()

    async def _begun(self) -> Caller | None:
        """Log a client in; return None for one that only cancels a statement. Raises Fatal."""
        for _ in range(4):
            code, body = await messages.read_first(self._reader)
            if code == messages.CANCEL_REQUEST:
                if len(body) == 8:
                    self._door.cancel(*struct.unpack("!II", body))
                return None
            if code == messages.GSS_REQUEST:
                self._writer.write(b"N")
            elif code == messages.SSL_REQUEST:
                await self._start_tls()
            else:
                return await self._logged_in(code, body)
        raise Fatal(PROTOCOL, "the client does not begin")

    async def _start_tls(self) -> None:
        if self._tls is None or self._secure:
            self._writer.write(b"N")
            return
        self._writer.write(b"S")
        await self._writer.drain()
        loop = asyncio.get_running_loop()
        # A new reader: what came before TLS, and not from this client perhaps, must not be read behind it.
        reader = asyncio.StreamReader(loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        transport = await loop.start_tls(self._writer.transport, protocol, self._tls.context, server_side=True)
        if transport is None:
            raise EOFError
        protocol.connection_made(transport)
        self._reader, self._writer = reader, asyncio.StreamWriter(transport, protocol, reader, loop)
        self._secure = True

    async def _logged_in(self, code: int, body: bytes) -> Caller:
        if code >> 16 != 3:
            raise Fatal(UNSUPPORTED, f"version {code >> 16}.{code & 0xFFFF} of the protocol is not spoken, 3.0 is")
        if self._tls is not None and not self._secure:
            raise Fatal("28000", "the server requires TLS", "connect with sslmode=require", code="P0801")
        given = _parameters(body)
        unknown = sorted(name for name in given if name.startswith("_pq_."))
        if code != messages.PROTOCOL_3 or unknown:
            self._writer.write(messages.negotiate(unknown))
        self.user = given.pop("user", "")
        if not self.user:
            raise Fatal("28000", "the client names no user", "the user is the name of a token", code="P0801")
        database = given.pop("database", self.user)
        if database not in _DATABASES and database != self.user:
            raise Fatal("3D000", f"there is no database {database}", f"there is one, {DATABASE}", code="P0201")
        if given.pop("replication", "false").lower() not in ("false", "off", "no", "0"):
            raise Fatal(UNSUPPORTED, "replication is not supported", "SUBSCRIBE follows a query")
        if len(self._door.connections) >= self._door.limits.connections:
            most = self._door.limits.connections
            raise Fatal(TOO_MANY, f"the server has {most:,} connections already, its max_connections", code="P0804")
        self.number = self._door.begin(self)
        caller = await self._caller()
        self.can_write = caller.role >= AccessRole.CONTROL
        self.session = SessionFact(
            f"pg-{self.number}", "postgresql", caller.name, caller.role.word, time.time(), self._address
        )
        warnings: list[str] = []
        self._variables = Variables(self.user, warnings.append)
        for name, value in given.items():
            if name == "options":
                self._options(value)
            elif not name.startswith("_pq_."):
                self._apply(name, value)
        self._variables.begun()
        # Clients accept no notice before the login has succeeded.
        self._warnings = warnings
        return caller

    def _apply(self, name: str, value: str) -> None:
        if not self._variables.knows(name):
            raise Fatal("42704", f"there is no setting {name}", code="P0104")
        try:
            self._variables.set(name, value)
        except WireError as error:
            raise Fatal(error.state, error.message, error.hint, code=error.code) from None

    def _options(self, text: str) -> None:
        """Apply the settings of a command line: `-c name=value`, `--name=value`."""
        words = text.replace("\\ ", "\0").split()
        at = 0
        while at < len(words):
            word = words[at]
            if word == "-c" and at + 1 < len(words):
                at += 1
                word = words[at]
            elif word.startswith(("-c", "--")):
                word = word[2:]
            else:
                raise Fatal(UNSUPPORTED, f"the option {word} is not known", "write -c name=value")
            name, mark, value = word.replace("\0", " ").partition("=")
            if not mark:
                raise Fatal(UNSUPPORTED, f"the option {word} has no value", "write -c name=value")
            self._apply(name.replace("-", "_"), value)
            at += 1

    # -- the login ---------------------------------------------------------------------------------------------

    async def _caller(self) -> Caller:
        """Return who the client is. Raises Fatal 28P01."""
        tokens = self._door.tokens
        if tokens is None:
            return ANYONE
        entry = next((one for one in await self._door.call(tokens.entries) if one.name == self.user), None)
        wait = 0.0
        if entry is None or (self._address, entry.name, entry.sha256) not in self._door.known:
            wait = self._door.failures.wait(self._address)
        if wait:
            hint = f"try again in {math.ceil(wait)} seconds"
            raise Fatal(TOO_MANY, f"too many failed attempts from {self._address}", hint, code="P0801")
        proof = await self._proof(entry)
        caller = None if entry is None or proof is None else await self._door.call(lambda: tokens.valid(entry))
        if caller is None or proof is None or entry is None:
            self._door.failures.failed(self._address)
            log_event(
                _LOG,
                logging.WARNING,
                "login failed",
                f"a login from {self._address} was refused",
                address=self._address,
            )
            hint = "the user is the name of a token, the password the token; `penstock token list` shows the names"
            raise Fatal(NO_LOGIN, f"the login of {self.user} was refused", hint, code="P0801")
        self._door.known.add((self._address, entry.name, entry.sha256))
        self._writer.write(messages.authentication(_FINAL, proof))
        return caller

    async def _proof(self, entry: TokenEntry | None) -> bytes | None:
        """Have the client prove that it knows the token; return the server's proof, None where it does not."""
        verifier = await self._door.call(
            lambda: Verifier.of_nobody(self.user) if entry is None else Verifier.parse(entry.scram)
        )
        end_point = self._tls.end_point if self._tls is not None and self._secure else None
        offered = [MECHANISM] if end_point is None else [BOUND, MECHANISM]
        self._writer.write(messages.authentication(_SASL, "".join(f"{one}\0" for one in offered).encode() + b"\0"))
        fields = Fields(await messages.read_login(self._reader))
        chosen = fields.text()
        if chosen not in offered:
            raise Fatal(PROTOCOL, f"the only way to log in is {' or '.join(offered)}")
        exchange = ScramExchange(verifier, end_point, bound=chosen == BOUND)
        self._writer.write(messages.authentication(_CONTINUE, exchange.first(fields.value() or b"")))
        return exchange.last(await messages.read_login(self._reader))

    # -- the conversation --------------------------------------------------------------------------------------

    async def _conversed(self, caller: Caller) -> None:
        self._executor = Executor(self._door, caller, self, SessionState(self._variables, self._notice))
        self._session = Conversation(self._door, self._reader, self._writer, self._executor, self._variables)
        self._variables.warn = lambda text: self._notice("WARNING", text, None)
        # As one: each write to a client that has left is a warning.
        parts = [messages.authentication(0)]
        parts += [messages.problem("N", notice_fields(text, "WARNING")) for text in self._warnings]
        parts += [messages.parameter_status(name, value) for name, value in self._variables.reported().items()]
        self._writer.write(b"".join([*parts, messages.backend_key(self.number, self.secret)]))
        await self._session.run()

    def _notice(self, severity: str, text: str, hint: str | None) -> None:
        if self._session is not None:
            self._session.notice(severity, text, hint)


def _parameters(body: bytes) -> dict[str, str]:
    """Return the names and values of a first message. Raises Fatal."""
    fields = Fields(body)
    found: dict[str, str] = {}
    try:
        while (name := fields.text()) != "":
            found[name] = fields.text()
        fields.end()
    except WireError as error:
        raise Fatal(error.state, error.message, code=error.code) from None
    return found
