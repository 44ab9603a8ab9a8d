"""Why a server cannot be reached, and what to do about it."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator

from penstock.errors import PenstockError

_UNTRUSTED = (
    "name the file of the certificates to trust: --tls-ca FILE, the variable PENSTOCK_TLS_CA, or "
    "connect(..., certificates=FILE)"
)
_OTHER_NAME = "use a name in the address that the certificate has, or have one made with that name (subjectAltName)"
#: What helps against a certificate that is not accepted, by the number that OpenSSL gives the reason.
_CERTIFICATE_HINTS = {
    9: "is the clock of this machine right?",
    10: "the server needs a new certificate (--tls-cert), unless the clock of this machine is wrong",
    62: _OTHER_NAME,
    64: _OTHER_NAME,
}
#: Part of the error of httpx or the system for a lost connection -> its meaning in words.
_REASONS = {
    "peer closed connection": "the connection ended in the midst of an answer",
    "Connection refused": "the connection was refused",
    "Connection reset": "the connection was broken off",
    "Broken pipe": "the connection was broken off",
}


def unreachable(url: str, error: BaseException) -> PenstockError:
    """Return the error for a server that cannot be reached."""
    reason, hint = reason_of(error), "is `penstock serve` running, at this address?"
    if is_late(error):
        reason, hint = "no answer has come in time", "connect(..., timeout=SECONDS) waits longer"
    secure = url.lower().startswith("https:")
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            reason = f"its certificate is not accepted: {cause.verify_message or cause}"
            hint = _CERTIFICATE_HINTS.get(cause.verify_code, _UNTRUSTED)
            break
        if isinstance(cause, ssl.SSLError) and secure:
            reason, hint = "it does not speak TLS here", f"write {url.replace('https:', 'http:', 1)}"
            break
        if isinstance(cause, socket.gaierror):
            reason, hint = "there is no host of that name", "check the address"
            break
        if not secure and "disconnected without sending a response" in str(cause):
            hint = (
                f"a server with TLS has the address {url.replace('http:', 'https:', 1)}; the port of --pg speaks "
                "PostgreSQL's protocol, that of --http is the one"
            )
    return PenstockError("P0808", f"{url} cannot be reached: {reason}", hint=hint, cause=error)


def reason_of(error: BaseException) -> str:
    """Return in words why a connection was lost."""
    text = str(error)
    for part, reason in _REASONS.items():
        if part in text:
            return reason
    return text or "the connection was broken off"


def plain_reason(error: BaseException) -> Exception:
    """Return an error that has in words why a connection was lost."""
    plain = ConnectionError(reason_of(error))
    plain.__cause__ = error
    return plain


def is_late(error: BaseException) -> bool:
    """Return whether a server was reached, and has not answered in time."""
    return any(type(cause).__name__ == "ReadTimeout" for cause in _causes(error))


def is_hopeless(error: BaseException) -> bool:
    """Return whether another attempt would end in the same way, as with TLS that does not fit, or later than the caller
    waits: an answer has not come in time."""
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
