"""Who calls, and what a role allows."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from penstock.errors import PenstockError


class AccessRole(enum.IntEnum):
    """What a token allows; each role includes those before it."""

    READ = 1
    CONTROL = 2
    ADMIN = 3

    @property
    def word(self) -> str:
        """Return the role as it is written in the token file."""
        return self.name.lower()


@dataclass(frozen=True)
class Caller:
    """The owner of a token. name: of the token; commands and their log name it."""

    name: str
    role: AccessRole

    def need(self, role: AccessRole, action: str) -> None:
        """Raises PenstockError P0802 where the caller has less than `role`. action: such as `to create a query`."""
        if self.role < role:
            raise PenstockError(
                "P0802",
                f"the token {self.name} has the role {self.role.word}, which is not enough {action}",
                hint=f"it needs the role {role.word}",
            )


#: The caller of a server that requires no tokens.
ANYONE = Caller("anyone", AccessRole.ADMIN)
