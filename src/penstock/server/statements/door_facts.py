"""What the doors of a server know, for control relations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.control.entities.system import DoorFacts, SessionFact, StatementFact, TokenFact
from penstock.redaction import redacted_text
from penstock.server.statements.running_statements import RunningStatements
from penstock.server.tokens import TokenFile


def door_facts(
    running: RunningStatements, tokens: TokenFile | None, sessions: Sequence[Callable[[], Sequence[SessionFact]]]
) -> DoorFacts:
    """Return what is known. tokens: None where none are required; sessions: by door that has some."""

    def statements() -> list[StatementFact]:
        return [
            StatementFact(one.id, one.kind, one.caller.name, one.began, redacted_text(one.text))
            for one in running.all()
        ]

    def known_tokens() -> list[TokenFact]:
        entries = () if tokens is None else tokens.entries()
        return [TokenFact(one.name, one.role, one.created, one.expires) for one in entries]

    return DoorFacts(lambda: [one for door in sessions for one in door()], statements, known_tokens)
