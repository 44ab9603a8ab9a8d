"""Doors beside HTTP's: each is a package of its own that knows the service, and that nothing knows but this table."""

from __future__ import annotations

import socket
from importlib import import_module
from typing import Protocol

from penstock.server.addresses import Address
from penstock.server.http.door import HttpDoor
from penstock.server.listening import Certificate

#: By the name of a protocol, the module that starts its door.
_MODULES = {"postgresql": "penstock.pgwire.listening"}


class Door(Protocol):
    """A door that listens. address: with the port that it has."""

    address: Address

    def close(self) -> None:
        """Accept no more connections, cancel what runs, and end."""


def start_door(
    protocol: str, http: HttpDoor, address: Address, listener: socket.socket, certificate: Certificate | None
) -> Door:
    """Start the door of a protocol.

    Args:
        http: to whose service it leads, with the same limits.
        listener: a socket that listens at the address.
    """
    door: Door = import_module(_MODULES[protocol]).start(http, address, listener, certificate)
    return door
