"""Why a server cannot be reached, and what to do about it."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator

from penstock.errors import PenstockError


def unreachable(url: str, error: BaseException) -> PenstockError:
    """Return the error for a server that cannot be reached."""
    reason, hint = str(error) or type(error).__name__, "is `penstock serve` running, at this address?"
    if is_late(error):
        reason, hint = "no answer has come in time", "connect(..., timeout=SECONDS) waits longer"
    secure = url.lower().startswith("https:")
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            reason = f"its certificate is not accepted: {cause.verify_message or cause}"
            hint = "name the file of the certificates to trust: --tls-ca FILE, or connect(..., certificates=FILE)"
            break
        if isinstance(cause, ssl.SSLError) and secure:
            reason, hint = "it does not speak TLS here", f"write {url.replace('https:', 'http:', 1)}"
            break
        if isinstance(cause, socket.gaierror):
            reason, hint = "there is no host of that name", "check the address"
            break
        if not secure and "disconnected without sending a response" in str(cause):
            hint = f"a server with TLS has the address {url.replace('http:', 'https:', 1)}"
    return PenstockError("P0808", f"{url} cannot be reached: {reason}", hint=hint, cause=error)


def is_late(error: BaseException) -> bool:
    """Return whether a server was reached, and has not answered in time."""
    return any(type(cause).__name__ == "ReadTimeout" for cause in _causes(error))


def is_hopeless(error: BaseException) -> bool:
    """Return whether another attempt would end in the same way, as with TLS that does not fit, or later than the caller
    wants to wait: an answer has not come in time."""
    if is_late(error):
        return True
    return any(isinstance(cause, ssl.SSLCertVerificationError) or _is_plain(cause) for cause in _causes(error))


def _is_plain(cause: BaseException) -> bool:
    """Return whether the other side has answered something that is no TLS."""
    return isinstance(cause, ssl.SSLError) and cause.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and those that it stands for."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
