"""Where the server listens, and for which hosts it answers.

A page of another site may have its name resolved to this machine (DNS rebinding), and a browser would then send
requests here. Such a request names the host of that site: only requests for one of our names, or for an address by its
digits, are answered.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from dataclasses import dataclass

from penstock.errors import PenstockError

_HOST = re.compile(r"\[([0-9A-Fa-f:.]+)\](?::(\d{1,5}))?|([^\[\]:/@\s]+)(?::(\d{1,5}))?")
_LOCAL = "localhost"
_MOST_PORT = 65_535
#: Where a server listens that every machine reaches; it is the name of none.
_EVERYWHERE = frozenset({"0.0.0.0", "::", "0", "*"})


@dataclass(frozen=True)
class Address:
    """An address to listen on. host: a name or the digits of an IP address, an IPv6 one without brackets."""

    host: str
    port: int

    @staticmethod
    def parse(text: str) -> Address:
        """Return the address in `127.0.0.1:8265` or `[::1]:8265`. Raises PenstockError P0806."""
        match = _HOST.fullmatch(text)
        port = None if match is None else match[2] or match[4]
        if match is None or port is None or int(port) > _MOST_PORT:
            hint = "write HOST:PORT, as 127.0.0.1:8265; port 0 is any that is free"
            raise PenstockError("P0806", f"{text!r} is no address to listen on", hint=hint)
        return Address(match[1] or match[3], int(port))

    @property
    def is_loopback(self) -> bool:
        """Return whether only this machine reaches it; a name is resolved."""
        try:
            found = {info[4][0] for info in socket.getaddrinfo(self.host, None)}
        except OSError:
            return False
        return bool(found) and all(ipaddress.ip_address(str(one).partition("%")[0]).is_loopback for one in found)

    @property
    def shown(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class HostNames:
    """The names for which the server answers, in lower case, beside addresses in digits."""

    names: frozenset[str]

    @staticmethod
    def of(address: Address, names: tuple[str, ...] = ()) -> HostNames:
        """Return the names of an address. names: further ones, such as those of a certificate."""
        own = {_LOCAL, address.host.lower(), *(name.lower() for name in names)} - _EVERYWHERE
        if not address.is_loopback:
            own |= {socket.gethostname().lower(), socket.getfqdn().lower()}
        return HostNames(frozenset(own))

    def has(self, host: str) -> bool:
        """Return whether the value of a Host header is one of ours."""
        match = _HOST.fullmatch(host)
        if match is None:
            return False
        if int(match[2] or match[4] or 0) > _MOST_PORT:
            return False
        if match[1]:
            return _is_address(match[1], ipaddress.IPv6Address)
        name = match[3].lower().rstrip(".")
        return name in self.names or _is_address(name, ipaddress.IPv4Address)


def _is_address(text: str, kind: type[ipaddress.IPv4Address | ipaddress.IPv6Address]) -> bool:
    """Return whether a text is the address of a machine. 0.0.0.0 is none: to many systems it is this machine, and pages
    of other sites reach it past a browser's guard of private networks."""
    try:
        found = kind(text)
    except ValueError:
        return False
    inner = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return not found.is_unspecified and not (inner is not None and inner.is_unspecified)
