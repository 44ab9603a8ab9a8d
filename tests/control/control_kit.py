"""A control over the engine in this process, and what its tests ask it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.control.live.control import Control
from penstock.control.outcomes import CommandState, StatementOutcome
from penstock.engines.in_process import InProcessEngine

STREAM = "CREATE STREAM S (ts INT, v INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND RETAIN 1000 SECONDS;"
SUM = "CREATE QUERY q AS SELECT SUM(v) AS s FROM S [RANGE 5 SECONDS];"


class CommandFailed(Exception):
    """A command was accepted and failed when it was applied."""


class Server:
    """A control and its engine over one folder."""

    #: Part of the keys of commands that are posted again after they failed.
    attempt = 0

    def __init__(self, folder: Path, engine: InProcessEngine | None = None, **options: Any) -> None:
        self.engine = engine or InProcessEngine(folder / "engine")
        self.control = Control(folder, self.engine, **options)

    def run(self, script: str, **options: Any) -> list[StatementOutcome]:
        return self.control.submit(script, **options)

    def states(self, script: str, **options: Any) -> list[str]:
        found = self.run(script, **options)
        return ["" if one.outcome is None else one.outcome.state.value for one in found]

    def done(self, script: str, **options: Any) -> None:
        """Run a script whose commands must not fail."""
        for one in self.run(script, **options):
            if one.outcome is not None and one.outcome.state is CommandState.FAILED:
                raise CommandFailed(one)

    def answers(self, name: str) -> list[dict[str, Any]]:
        query = self.control.query(name)[1]
        return [row for table in self.engine.answers(query.place) for row in table.to_pylist()]

    def status(self, name: str) -> str:
        return self.control.query(name)[1].status.value


@contextmanager
def server(folder: Path, **options: Any) -> Iterator[Server]:
    made = Server(folder, **options)
    try:
        yield made
    finally:
        made.control.close()
