"""The socket of the PostgreSQL door, its thread, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading

from penstock.pgwire.connection import PgConnection
from penstock.pgwire.door import PgDoor
from penstock.pgwire.protocol.tls import DoorTls
from penstock.server.addresses import Address
from penstock.server.attempts import WaitingClients
from penstock.server.http.door import HttpDoor
from penstock.server.listening import Certificate

#: Seconds that connections get when the server ends.
_GRACE = 5.0
#: Connections that have not logged in, beyond those that have.
_PENDING = 100
#: Those that have been displaced and are being closed.
_LEAVING = 20


class PgServer:
    """A running door, in a thread of its own.

    Args:
        listener: a socket that listens at the address (`penstock.server.listening.opened`).
    """

    def __init__(
        self, door: PgDoor, address: Address, listener: socket.socket, certificate: Certificate | None = None
    ) -> None:
        self._door = door
        self._socket = listener
        self.address = Address(address.host, int(listener.getsockname()[1]))
        self._tls = None if certificate is None else DoorTls.of(certificate)
        self._loop = asyncio.new_event_loop()
        self._ending = asyncio.Event()
        self._open: set[asyncio.Task[None]] = set()
        self._waiting = WaitingClients()
        self._thread = threading.Thread(target=self._run, name="penstock-pg", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Accept no more connections, cancel what runs, and end."""
        self._door.closing.set()
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(2 * _GRACE)
        self._socket.close()
        self._door.close()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._accepted, sock=self._socket, limit=1 << 16)
        await self._ending.wait()
        server.close()
        for connection in list(self._door.connections.values()):
            connection.cancel()
        for task in list(self._open):
            task.cancel()
        if self._open:
            await asyncio.wait(self._open, timeout=_GRACE)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "it is called by the loop"
        peer = writer.get_extra_info("peername")
        address = str(peer[0]) if isinstance(peer, tuple) and peer else "unknown"
        connection = PgConnection(self._door, reader, writer, self._tls, address)
        is_full = len(self._open) >= self._door.limits.connections + _PENDING
        # One that is closed leaves its place in a moment.
        self._waiting.add(address, lambda: connection.session is None and task in self._open, connection.drop, is_full)
        if self._ending.is_set() or len(self._open) >= self._door.limits.connections + _PENDING + _LEAVING:
            writer.close()
            return
        self._open.add(task)
        found = writer.get_extra_info("socket")
        if found is not None:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        try:
            await connection.serve()
        except asyncio.CancelledError:
            pass
        finally:
            self._open.discard(task)


def start(http: HttpDoor, address: Address, listener: socket.socket, certificate: Certificate | None) -> PgServer:
    """Start the door beside another one (`penstock.server.http.application.doors`)."""
    return PgServer(PgDoor.beside(http), address, listener, certificate)
