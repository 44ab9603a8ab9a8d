"""A running server of a test, and clients of it."""

from __future__ import annotations

from dataclasses import dataclass

import httpx

from penstock.server.http.application.server import HttpServer
from penstock.server.http.door import HttpDoor
from penstock.server.roles import AccessRole
from penstock.server.tokens import TokenFile


@dataclass
class Running:
    """A server. texts: a token for each role; none where the server requires none."""

    server: HttpServer
    door: HttpDoor
    tokens: TokenFile
    texts: dict[AccessRole, str]

    @property
    def url(self) -> str:
        return self.server.url

    def client(self, role: AccessRole | None = None) -> httpx.Client:
        """Return a client with the token of a role, or without one."""
        headers = {} if role is None else {"Authorization": f"Bearer {self.texts[role]}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=20)
