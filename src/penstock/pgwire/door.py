"""What all connections of the PostgreSQL door share: the service, the limits, threads, the catalogs, and cancelling."""

from __future__ import annotations

import asyncio
import hmac
import secrets
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from penstock.control.entities.system import SessionFact
from penstock.errors import Busy
from penstock.language.statements.script import Script
from penstock.pgwire.catalog.answers import KnownAnswers
from penstock.pgwire.catalog.database.processes import CatalogProcesses
from penstock.pgwire.catalog.declarations.declared import PUBLIC, CatalogImage, DeclaredRelation
from penstock.pgwire.catalog.declarations.image import Oids, catalog_image, declared_relations
from penstock.pgwire.catalog.engine import CatalogAnswer
from penstock.server.attempts import FailedLogins
from penstock.server.http.door import HttpDoor
from penstock.server.limits import DoorLimits, ScriptRate
from penstock.server.service import Service
from penstock.server.statements.parsing import ScriptParser
from penstock.server.tokens import TokenFile

T = TypeVar("T")


class Cancellable(Protocol):
    """A connection whose statement can be cancelled."""

    secret: int
    session: SessionFact | None

    def cancel(self) -> None: ...


@dataclass
class PgDoor:
    """The state of the door.

    Args:
        tokens: None where none are required.
        closing: set when the server ends.
        failures, scripts, parser: may be those of another door, so that limits are of the server.
    """

    service: Service
    tokens: TokenFile | None
    limits: DoorLimits
    failures: FailedLogins = field(default_factory=FailedLogins)
    scripts: ScriptRate | None = None
    parser: ScriptParser | None = None
    closing: threading.Event = field(default_factory=threading.Event)

    @staticmethod
    def beside(http: HttpDoor) -> PgDoor:
        """Return a door to the same service as another, with the same limits."""
        return PgDoor(http.service, http.tokens, http.limits, http.failures, http.scripts, http.parser)

    def __post_init__(self) -> None:
        self.service.list_sessions(self.sessions)
        self._scripts = self.scripts or ScriptRate(self.limits.scripts)
        self._parser = self.parser or ScriptParser(self.limits.seconds)
        self._calls = ThreadPoolExecutor(self.limits.connections, "penstock-pg")
        self._streams = ThreadPoolExecutor(self.limits.subscriptions, "penstock-pg-rows")
        self.connections: dict[int, Cancellable] = {}
        self.subscriptions = 0
        #: Logins that have succeeded: address, name and digest of the token. They are no attempts any more.
        self.known: set[tuple[str, str, str]] = set()
        self.catalogs = CatalogProcesses(self.limits.seconds)
        self.answers: KnownAnswers[CatalogAnswer] = KnownAnswers()
        self._oids = Oids()
        self._lock = threading.Lock()
        self._relations: tuple[object, list[DeclaredRelation]] | None = None
        self._image: tuple[object, CatalogImage] | None = None

    # -- connections -------------------------------------------------------------------------------------------

    def begin(self, connection: Cancellable) -> int:
        """Note a connection until `end`; return its number."""
        number = next(n for n in iter(lambda: secrets.randbelow(1 << 30) + 1, 0) if n not in self.connections)
        self.connections[number] = connection
        return number

    def end(self, number: int) -> None:
        self.connections.pop(number, None)

    def sessions(self) -> list[SessionFact]:
        """Return the connections whose users are known; called by any thread."""
        return [one.session for one in list(self.connections.values()) if one.session is not None]

    def cancel(self, number: int, secret: int) -> None:
        """Cancel what a connection is doing, where the secret is its own. The sender gets no answer."""
        found = self.connections.get(number)
        if found is not None and hmac.compare_digest(found.secret.to_bytes(4), secret.to_bytes(4)):
            found.cancel()

    def count_script(self, token: str) -> None:
        """Count a script of a token. Raises Busy beyond the limit."""
        self._scripts.count(token)

    # -- threads -----------------------------------------------------------------------------------------------

    async def call(self, action: Callable[[], T]) -> T:
        """Return what a call returns that blocks, from a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._calls, action)

    async def parsed(self, text: str) -> Script:
        """Return a script in which `$1` stands for a value, parsed in a thread. Raises as `ScriptParser`."""
        return await self.call(lambda: self._parser(text, parameters=True))

    async def streaming(self, action: Callable[[], T]) -> T:
        """Return what a call of a subscription returns."""
        return await asyncio.get_running_loop().run_in_executor(self._streams, action)

    def open_stream(self) -> None:
        """Count one more subscription until `close_stream`. Raises Busy beyond the limit."""
        if self.subscriptions >= self.limits.subscriptions:
            message = f"the server serves {self.subscriptions:,} subscriptions already, its max_subscriptions"
            raise Busy(message, 1.0, hint="try again later, or raise the limit where the server is started")
        self.subscriptions += 1

    def close_stream(self) -> None:
        self.subscriptions -= 1

    def close(self) -> None:
        self._parser.close()
        self.catalogs.close()
        self._calls.shutdown(wait=False, cancel_futures=True)
        self._streams.shutdown(wait=False, cancel_futures=True)

    # -- the catalogs ------------------------------------------------------------------------------------------

    def image(self) -> CatalogImage:
        """Return the catalogs of what is declared now; may block."""
        with self._lock:
            version, relations = self._declared()
            if self._image is None or self._image[0] is not version:
                self._image = version, catalog_image(relations, self._oids)
            return self._image[1]

    def _declared(self) -> tuple[object, list[DeclaredRelation]]:
        """Return what is declared, and the version of it; under the lock."""
        version = self.service.catalog_version()
        if self._relations is None or self._relations[0] is not version:
            self._relations = version, declared_relations(self.service.catalog(), self._oids)
        return self._relations

    def names(self) -> frozenset[str]:
        """Return the names of all declarations, in lower case; may block."""
        with self._lock:
            return frozenset(one.name.lower() for one in self._declared()[1] if one.schema == PUBLIC)
