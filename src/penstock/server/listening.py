"""The socket at which a door listens, and its TLS.

The socket is opened before anything is started, so that a port that is in use is an error of the start and a port of 0
is known before the first request.
"""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import PenstockError
from penstock.server.addresses import Address

_BACKLOG = 512
#: Bytes that the system takes for a client beyond what is on its way to it; without a limit some MB, which many slow
#: clients each keep full.
_TAKEN_BY_SYSTEM = 2**17


@dataclass(frozen=True)
class Certificate:
    """The TLS certificate chain and its key, PEM files."""

    chain: Path
    key: Path

    def check(self) -> None:
        """Raises PenstockError P0806 for files that are no certificate with its key."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self.chain, self.key)
        except (OSError, ssl.SSLError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            message = f"{self.chain} and {self.key} cannot be used for TLS: {reason}"
            hint = "both are PEM: files that begin with -----BEGIN, the certificate with its chain, and its key"
            raise PenstockError("P0806", message, hint=hint, cause=error) from None


def check_exposure(address: Address, certificate: Certificate | None, tokens: bool, insecure: bool) -> None:
    """Raises PenstockError P0806 for a server without tokens or TLS that others than this machine reach."""
    if address.is_loopback:
        return
    if not tokens:
        message = f"a server without tokens may only listen on this machine, not on {address.shown}"
        raise PenstockError("P0806", message, hint="leave out --no-auth, or listen on 127.0.0.1")
    if certificate is None and not insecure:
        hint = "add --tls-cert and --tls-key; --insecure sends tokens and rows unencrypted"
        raise PenstockError(
            "P0806", f"{address.shown} can be reached by other machines, and there is no TLS", hint=hint
        )


def opened(address: Address, option: str = "--http") -> socket.socket:
    """Return a listening socket. option: that chooses the address. Raises PenstockError P0806."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # Its connections have the limit too. What is on its way has none of it, which fast clients far away need.
            if hasattr(socket, "TCP_NOTSENT_LOWAT"):
                listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _TAKEN_BY_SYSTEM)
            listener.bind(place)
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        reason = error.strerror or str(error)
        message = f"the server cannot listen on {address.shown}: {reason}"
        raise PenstockError("P0806", message, hint=f"choose another {option}", cause=error) from None
    return listener
