"""Requests to a server: tokens, errors as PenstockErrors, and repetition of what a lost connection left open.

A request that changes something carries an idempotency key, so it can be sent again until an answer has come: it
happens once.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakSet

from penstock.client.answers import error_of
from penstock.client.lost import is_hopeless, unreachable
from penstock.errors import PenstockError

try:
    import httpx
except ImportError as error:  # pragma: no cover - the extra is there in tests
    raise PenstockError(
        "P0809", "penstock.client needs the package httpx", hint="pip install 'penstock[client]'", cause=error
    ) from None

T = TypeVar("T")

#: Seconds before a request is sent again: the first, and the longest.
_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_HERE = frozenset({"localhost", "127.0.0.1", "::1"})
#: Beyond it a port would be taken for the rest of a division.
_LAST_PORT = 65_535
#: Of `penstock serve`.
_USUAL_PORT = 8265
#: Seconds until a connection is there.
_CONNECT_SECONDS = 10.0
#: Sources of whose rows what is read waits for.
_MOST_SOURCES = 100
#: Options of the socket of a subscription, which may be silent for days: a peer that is gone is noticed within two
#: minutes.
_KEEP_ALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}


class Unavailable(ConnectionError):
    """The server is busy or restarts. error: its answer; seconds: when to try again."""

    def __init__(self, error: PenstockError, seconds: float) -> None:
        super().__init__(error.message)
        self.error = error
        self.seconds = seconds


#: Errors of a connection, after which a request may be sent again.
LOST = (httpx.TransportError, ConnectionError)


class Connection:
    """A connection to one server.

    Args:
        url: such as `http://127.0.0.1:8265`.
        token: None for a server that requires none.
        patience: seconds for which a server that is not reached is tried again.
        verify: the file of certificates to trust beside the system's, for TLS.
        timeout: seconds in which an answer begins, and after which it may not pause longer; None: any time, as for
            subscriptions.
    """

    def __init__(
        self, url: str, token: str | None, patience: float, verify: str | None = None, timeout: float | None = 120.0
    ) -> None:
        token = _checked_token(token)
        if not isinstance(url, str):
            raise PenstockError(
                "P0808", f"an address is a text, not {type(url).__name__}", hint="http://127.0.0.1:8265"
            )
        if isinstance(patience, bool) or not isinstance(patience, int | float) or patience < 0:
            raise PenstockError("P0808", f"patience={patience!r} is no number of seconds")
        headers = {"User-Agent": "penstock"} | ({"Authorization": f"Bearer {token}"} if token else {})
        # Made once, since it takes long, for all clients of httpx.
        trust: ssl.SSLContext | bool = False
        try:
            if httpx.URL(url).scheme not in ("http", "https") or not httpx.URL(url).host:
                raise ValueError("an address begins with http:// or https:// and the name of a host")
            if timeout is not None and not 0 < timeout < float("inf"):
                raise ValueError(f"timeout={timeout} is no number of seconds; None waits for any time")
            if httpx.URL(url).path.rstrip("/").endswith("/v1"):
                raise ValueError("/v1 is not a part of the address: the client adds it")
            port = httpx.URL(url).port
            if port is not None and not 1 <= port <= _LAST_PORT:
                raise ValueError(f"{port} is no port: they go from 1 to {_LAST_PORT}")
            if httpx.URL(url).userinfo:
                raise ValueError("a token is given by itself, not as a part of the address")
            if verify is not None:
                trust = ssl.create_default_context()
                trust.load_verify_locations(cafile=verify)
            elif httpx.URL(url).scheme == "https":
                trust = httpx.create_ssl_context()
            waits = httpx.Timeout(timeout, connect=min(timeout or _CONNECT_SECONDS, _CONNECT_SECONDS))
            # A proxy of the environment is for other machines: it cannot reach this one, and gets no token.
            is_elsewhere = httpx.URL(url).host not in _HERE
            self._client = partial(
                httpx.Client, base_url=url, headers=headers, timeout=waits, verify=trust, trust_env=is_elsewhere
            )
            self._http = self._client()
            self._streams: WeakSet[httpx.Client] = WeakSet()
        except (httpx.InvalidURL, ValueError, OSError) as error:
            reason = f"the certificates {verify}: {error}" if isinstance(error, OSError) else str(error)
            shown = url.rpartition("@")[2]
            hint = f"write {_with_scheme(shown)}" if "://" not in shown else None
            raise PenstockError("P0808", f"{shown!r} cannot be used: {reason}", hint=hint, cause=error) from None
        self.url = url
        self.patience = patience
        #: By source, the last post that this client has added; what it reads waits for them.
        self._posts: dict[str, int] = {}

    def close(self) -> None:
        self._http.close()
        for client in list(self._streams):
            client.close()

    def added(self, position: str | None) -> None:
        """Note up to which position this client has added rows."""
        for source, _, post in (one.partition(".") for one in (position or "").split(",") if one):
            self._posts[source] = max(int(post), self._posts.pop(source, 0))
        # Of more sources than that, those to which rows were added last.
        for source in list(self._posts)[:-_MOST_SOURCES]:
            self._posts.pop(source, None)

    @property
    def after(self) -> dict[str, str]:
        """Return the header by which what is read waits for the rows that this client has added."""
        position = ",".join(f"{source}.{post}" for source, post in list(self._posts.items()))
        return {"Penstock-After": position} if position else {}

    def _check_open(self) -> None:
        """Raise PenstockError P0808 behind `close`."""
        if self._http.is_closed:
            raise PenstockError("P0808", "this client has been closed", hint="connect again")

    def json(self, method: str, path: str, **request: Any) -> Any:
        """Return the JSON document of an answer. Raises PenstockError."""
        content = self.send(method, path, **request).content
        try:
            return json.loads(content)
        except ValueError as error:
            raise PenstockError("P0808", f"{self.url} answered without JSON", cause=error) from None

    def send(self, method: str, path: str, refusals: frozenset[int] = frozenset(), **request: Any) -> httpx.Response:
        """Return an answer; send the request again while the server is not reached or busy. refusals: statuses of
        errors that are answers like others. Raises PenstockError."""

        def sent() -> httpx.Response:
            answer = self._http.request(method, path, **request)
            if answer.is_error and answer.status_code not in refusals:
                raise _failed(answer)
            return answer

        return self.repeated(sent)

    def repeated(self, work: Callable[[], T]) -> T:
        """Return what `work` returns, which is tried again while the server is not reached or busy. Raises
        PenstockError."""
        self._check_open()
        end = time.monotonic() + self.patience
        for pause in pauses():
            try:
                return work()
            except LOST as error:
                self.wait(pause, end, error)
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                raise unreachable(self.url, error) from None
        raise AssertionError("pauses have no end")

    @contextmanager
    def answered(self, method: str, path: str, accept: str, own_pool: bool, **request: Any) -> Iterator[httpx.Response]:
        """Open an answer that has an end and is read as it comes, within the client's `timeout`. Raises PenstockError
        for an error of the server, LOST for a connection that cannot be opened.

        Args:
            own_pool: whether it has connections of its own, as one needs that may be left to the collection of garbage.
        """
        self._check_open()
        with ExitStack() as stack:
            client = stack.enter_context(self._client()) if own_pool else self._http
            if own_pool:
                self._streams.add(client)
            answer = stack.enter_context(
                client.stream(method, path, headers={"Accept": accept, **self.after}, **request)
            )
            if answer.is_error:
                answer.read()
                raise _failed(answer)
            yield answer

    @contextmanager
    def stream(self, method: str, path: str, accept: str, **request: Any) -> Iterator[httpx.Response]:
        """Open an answer that is read as it comes. Raises PenstockError for an error of the server, LOST for a
        connection that cannot be opened.

        It has a pool of connections of its own: garbage collection may close an unreferenced connection in the midst of
        a request of this thread, which has the lock of its pool.
        """
        self._check_open()
        waits = httpx.Timeout(None, connect=_CONNECT_SECONDS)
        headers = {"Accept": accept, **self.after, **request.pop("headers", {})}
        with self._client() as client, client.stream(method, path, headers=headers, timeout=waits, **request) as answer:
            self._streams.add(client)
            if answer.is_error:
                answer.read()
                raise _failed(answer)
            _keep_alive(answer)
            yield answer

    def lines(self, path: str) -> Iterator[str]:
        """Yield the lines of an answer that has no end. Raises PenstockError, P0808 where the connection is lost."""
        try:
            with self.stream("GET", path, "text/event-stream") as answer:
                yield from answer.iter_lines()
        except LOST as error:
            raise self._final(error) from None

    def wait(self, pause: float, end: float, error: Exception) -> None:
        """Wait before another attempt. Raises PenstockError, P0808 or the error of the server, where the patience has
        ended and where another attempt would end in the same way."""
        if isinstance(error, Unavailable):
            pause = max(pause, error.seconds)
        if time.monotonic() + pause >= end or is_hopeless(error):
            raise self._final(error) from None
        time.sleep(pause)

    def _final(self, error: Exception) -> PenstockError:
        """Return the error for a connection that is not tried again."""
        return error.error if isinstance(error, Unavailable) else unreachable(self.url, error)


def hanging_up(answer: httpx.Response) -> Callable[[], None]:
    """Return what breaks an answer off that another thread waits for."""
    connection = _socket(answer)

    def hang_up() -> None:
        try:
            if connection is not None:
                connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it is gone already

    return hang_up


def _socket(answer: httpx.Response) -> socket.socket | None:
    network = answer.extensions.get("network_stream")
    found = None if network is None else network.get_extra_info("socket")
    return found if isinstance(found, socket.socket) else None


def _keep_alive(answer: httpx.Response) -> None:
    """Have the machine notice a server that vanishes without a word, such as one without power."""
    connection = _socket(answer)
    if connection is None:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        option = getattr(socket, name, None)
        if option is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


def _with_scheme(address: str) -> str:
    """Return an address without `http://` as it is probably meant."""
    host, slash, rest = (address.strip().strip("/") or "127.0.0.1").partition("/")
    port = "" if re.search(r":\d+$", host) else f":{_USUAL_PORT}"
    return f"http://{host}{port}{slash}{rest}"


def _checked_token(token: str | None) -> str | None:
    """Return a token without the line break that it has in a file. Raises PenstockError P0808."""
    if token is None:
        return None
    # Python does not check it, and a path is what one takes the text for.
    if not isinstance(token, str):
        what = f"the token is a {type(token).__name__} and no text"  # type: ignore[unreachable]  # callers need not be checked
    elif not ((token := token.strip()).isascii() and token.isprintable()):
        what = "the token has other characters than a token has"
    elif Path(token).is_file():
        hint = f"its content is: Path({token!r}).read_text()"
        raise PenstockError("P0808", f"the token {token} is the name of a file", hint=hint)
    else:
        return token
    raise PenstockError("P0808", what, hint="hand over the text that `penstock token add` has printed")


def pauses() -> Iterator[float]:
    """Yield the seconds to wait after each failed attempt, without end."""
    pause = _PAUSE
    while True:
        yield pause
        pause = min(2 * pause, _LONGEST_PAUSE)


def _failed(answer: httpx.Response) -> PenstockError | Unavailable:
    """Return the error of an answer: Unavailable where the same request may be answered later."""
    seconds = answer.headers.get("retry-after", "")
    try:
        error = error_of(json.loads(answer.content))
    except (ValueError, KeyError, TypeError):
        error = PenstockError(
            "P0808",
            f"the answer {answer.status_code} is none of a Penstock server",
            hint=f"is there a Penstock server at {answer.url.copy_with(path='/', query=None)}?",
        )
        if answer.status_code in (502, 503, 504):  # a proxy whose server restarts
            return Unavailable(error, 0.0)
    if error.code == "P0801" and "Authorization" not in answer.request.headers:
        error.hint = "hand over a token: connect(url, token), --token-file FILE or the variable PENSTOCK_TOKEN"
    if answer.status_code in (429, 503) and seconds.isdecimal():
        return Unavailable(error, float(seconds))
    return error
