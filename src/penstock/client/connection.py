"""Requests to a server: tokens, errors as PenstockErrors, and repetition of what a lost connection left open.

A request that changes something carries an idempotency key, so it can be sent again until an answer has come: it
happens once.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from penstock.client.answers import error_of
from penstock.errors import PenstockError

try:
    import httpx
except ImportError as error:  # pragma: no cover - the extra is there in tests
    raise PenstockError(
        "P0809", "penstock.client needs the package httpx", hint="pip install 'penstock[client]'", cause=error
    ) from None

#: Seconds before a request is sent again: the first, and the longest.
_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_AGAIN = frozenset({429, 503})
#: Errors of a connection, after which a request may be sent again.
LOST = (httpx.TransportError, ConnectionError)


class Connection:
    """A connection to one server.

    Args:
        url: such as `http://127.0.0.1:8265`.
        token: None for a server that requires none.
        patience: seconds for which a server that is not reached is tried again.
        verify: the file of certificates to trust beside the system's, for TLS.
    """

    def __init__(self, url: str, token: str | None, patience: float, verify: str | None = None) -> None:
        headers = {"User-Agent": "penstock"} | ({"Authorization": f"Bearer {token}"} if token else {})
        trust: ssl.SSLContext | bool = True
        try:
            if httpx.URL(url).scheme not in ("http", "https") or not httpx.URL(url).host:
                raise ValueError("an address begins with http:// or https:// and the name of a host")
            if verify is not None:
                trust = ssl.create_default_context(cafile=verify)
            timeout = httpx.Timeout(None, connect=10.0)
            self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout, verify=trust)
        except (httpx.InvalidURL, ValueError, OSError) as error:
            raise PenstockError("P0808", f"{url!r} cannot be used: {error}", cause=error) from None
        self.url = url
        self.patience = patience

    def close(self) -> None:
        self._http.close()

    def json(self, method: str, path: str, **request: Any) -> Any:
        """Return the JSON document of an answer. Raises PenstockError."""
        content = self.send(method, path, **request).content
        try:
            return json.loads(content)
        except ValueError as error:
            raise PenstockError("P0808", f"{self.url} answered without JSON", cause=error) from None

    def send(self, method: str, path: str, **request: Any) -> httpx.Response:
        """Return an answer; send the request again while the server is not reached or busy. Raises PenstockError."""
        end = time.monotonic() + self.patience
        for pause in pauses():
            try:
                answer = self._http.request(method, path, **request)
            except LOST as error:
                self.wait(pause, end, error)
                continue
            except httpx.HTTPError as error:
                raise self._lost(error) from None
            if answer.status_code in _AGAIN and time.monotonic() + _seconds(answer.headers, pause) < end:
                time.sleep(_seconds(answer.headers, pause))
                continue
            if answer.is_error:
                raise _error(answer)
            return answer
        raise AssertionError("pauses have no end")

    @contextmanager
    def stream(self, path: str, params: Mapping[str, str], accept: str) -> Iterator[httpx.Response]:
        """Open an answer that is read as it comes. Raises PenstockError for an error of the server, LOST for a
        connection that cannot be opened."""
        with self._http.stream("GET", path, params=dict(params), headers={"Accept": accept}) as answer:
            if answer.is_error:
                answer.read()
                raise _error(answer)
            yield answer

    def wait(self, pause: float, end: float, error: Exception) -> None:
        """Wait before another attempt. Raises PenstockError P0808 where the patience has ended."""
        if time.monotonic() + pause >= end:
            raise self._lost(error) from None
        time.sleep(pause)

    def _lost(self, error: Exception) -> PenstockError:
        reason = str(error) or type(error).__name__
        hint = "is `penstock serve` running, at this address?"
        return PenstockError("P0808", f"{self.url} cannot be reached: {reason}", hint=hint, cause=error)


def pauses() -> Iterator[float]:
    """Yield the seconds to wait after each failed attempt, without end."""
    pause = _PAUSE
    while True:
        yield pause
        pause = min(2 * pause, _LONGEST_PAUSE)


def _seconds(headers: Mapping[str, str], pause: float) -> float:
    value = headers.get("retry-after", "")
    return float(value) if value.isdecimal() else pause


def _error(answer: httpx.Response) -> PenstockError:
    try:
        return error_of(json.loads(answer.content))
    except (ValueError, KeyError, TypeError):
        return PenstockError("P0808", f"the answer {answer.status_code} is none of a Penstock server")
