"""The HTTP server of a door: its connections, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from typing import Any, ClassVar

import h11
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from penstock.server.addresses import Address
from penstock.server.attempts import BEFORE_LOGIN, WaitingClients
from penstock.server.http.application.app import create_app
from penstock.server.http.door import HttpDoor
from penstock.server.http.problems import MEDIA, Refused, problem
from penstock.server.listening import Certificate, opened

#: Seconds that open requests get when the server ends.
_GRACE = 5
#: Bytes of an answer that wait for a slow client, beyond what the system takes and the part that is being sent.
_UNSENT = 2**14
#: Seconds that a client may take for a request; a longer body has more, by the bytes per second.
PATIENCE, SLOWEST = 30.0, 500
#: Connections that are open without a request, beyond those with one.
_IDLE = 200


class _Connection(H11Protocol):
    """A connection that holds little of what its client does not take, and is closed where the client owes the rest of
    a request for long."""

    #: Of the server.
    waiting: ClassVar[WaitingClients]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._has_logged_in = False
        # What is beyond the limit is answered here: uvicorn's own answer is a text.
        self._most, self.limit_concurrency = self.limit_concurrency, None
        self._usual = self.app

    @property
    def _waits(self) -> bool:
        """Return whether its client has never made a request with a valid token, where the server has tokens."""
        # There is none before the first request.
        scope: Any = vars(self)["scope"]
        self._has_logged_in |= scope is not None and bool(scope["state"].get("admitted"))
        return not self._has_logged_in and not self.transport.is_closing()

    @property
    def _is_full(self) -> bool:
        return self._most is not None and max(len(self.connections), len(self.tasks)) >= self._most

    def handle_events(self) -> None:
        self.app = _too_many if self._is_full else self._usual
        super().handle_events()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # a server has transports that write
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=_UNSENT)
        #: Since when the client owes bytes, None where it does not; and how many have come since.
        self._owed_since: float | None = self.loop.time()
        self._received = 0
        self._timer = self.loop.call_later(self._patience / 2, self._check_progress)
        address = self.client[0] if self.client else "unknown"
        self.waiting.add(address, lambda: self._waits, transport.close, self._is_full)

    @property
    def _patience(self) -> float:
        return min(PATIENCE, BEFORE_LOGIN) if self._waits else PATIENCE

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        super().data_received(data)
        self._note_owed()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._note_owed()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP; the connection is closed, as it is unknown where the next request begins."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            # An answer has begun: it is broken off.
            self.transport.close()
            return
        refused = Refused(400, "P0803", "the request is not valid HTTP/1.1", hint="the connection is closed")
        body = bytes(problem(refused).body)
        headers = [("content-type", MEDIA), ("content-length", str(len(body))), ("connection", "close")]
        for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _note_owed(self) -> None:
        """Note whether the client owes the rest of a request, and since when."""
        waits = self.cycle is None or self.cycle.response_complete
        owes = (self.conn.their_state is h11.IDLE and waits) or self.conn.their_state is h11.SEND_BODY
        if not owes or self.flow.read_paused:
            self._owed_since = None
        elif self._owed_since is None:
            self._owed_since, self._received = self.loop.time(), 0

    def _check_progress(self) -> None:
        """Close the connection of a client that keeps it without sending what it owes."""
        self._note_owed()
        if self._owed_since is not None:
            seconds = self.loop.time() - self._owed_since
            if seconds >= self._patience and self._received < SLOWEST * seconds:
                self.transport.close()
                return
        self._timer = self.loop.call_later(self._patience / 2, self._check_progress)


async def _too_many(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request on a connection beyond the limit; it is closed, so that there are fewer."""
    headers = {"Retry-After": "1", "Connection": "close"}
    message = "the server has as many connections as max_connections and max_subscriptions allow"
    hint = "try again later, or raise the limits where the server is started"
    await problem(Refused(503, "P0804", message, hint, headers))(scope, receive, send)


class HttpServer:
    """A running HTTP server, in a thread of its own.

    Args:
        listener: an `opened` socket for the address; by default it is opened here.

    Raises:
        PenstockError: P0806 where it cannot listen, or has no certificate.
    """

    def __init__(
        self,
        door: HttpDoor,
        address: Address,
        certificate: Certificate | None = None,
        listener: socket.socket | None = None,
    ) -> None:
        if certificate is not None:
            certificate.check()
        self._door = door
        self._socket = listener or opened(address)
        self._scheme = "http" if certificate is None else "https"
        self.address = Address(address.host, int(self._socket.getsockname()[1]))
        # What it logs are faults of clients, and errors that the gate logs itself.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        limits = door.limits

        class Connection(_Connection):
            waiting = WaitingClients()

        config = uvicorn.Config(
            create_app(door),
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=True,
            lifespan="off",
            http=Connection,
            ws="none",
            timeout_graceful_shutdown=_GRACE,
            proxy_headers=False,
            limit_concurrency=limits.connections + limits.subscriptions + _IDLE,
            ssl_certfile=None if certificate is None else str(certificate.chain),
            ssl_keyfile=None if certificate is None else str(certificate.key),
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="penstock-http", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"{self._scheme}://{self.address.shown}"

    def close(self) -> None:
        """Accept no more requests, end subscriptions, and wait for the others for some seconds."""
        self._door.closing.set()
        self._server.should_exit = True
        self._thread.join(2 * _GRACE)
        self._socket.close()
        self._door.parser.close()

    def _run(self) -> None:
        with contextlib.suppress(SystemExit):
            asyncio.run(self._server.serve(sockets=[self._socket]))
