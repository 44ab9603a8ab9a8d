"""Who calls, and what a role allows."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import PenstockError
from penstock.language.statements import AccessRole as AccessRole


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
