"""`penstock run`: a session started, watched and stopped."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Protocol

import typer

from penstock.cli.watching import Watcher
from penstock.errors import PenstockError
from penstock.runtime.progress import RunProgress
from penstock.session import Session
from penstock.settings import Settings

_LOOK_SECONDS = 0.25
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Watched(Protocol):
    """What the command line needs of a run."""

    @property
    def dead_letters(self) -> str: ...

    def wait(self, timeout: float | None = None) -> bool: ...

    def stop(self) -> None: ...

    def progress(self) -> RunProgress: ...


def run_script(
    text: str,
    name: str,
    settings: Settings,
    checkpoint: Path | None,
    *,
    drain: bool,
    master: str | None,
    overwrite: bool,
    backfill: bool = False,
) -> int:
    """Runs a script to its end or to a signal, and returns the exit code. Raises PenstockError for what was wrong
    before anything ran."""
    session = Session(settings=settings, master=master)
    execution = session.execute(text, file=name)
    for answer in execution.texts:
        typer.echo(answer, nl=not answer.endswith("\n"))
    if not execution.queries:
        typer.echo(f"{name}: no query to run", err=True)
        return 0
    watcher = Watcher()
    watcher.say(f"running {', '.join(execution.queries)} of {name}")
    run = session.start(str(checkpoint) if checkpoint else None, drain, overwrite, backfill=backfill)
    for notice in run.notices:
        watcher.say(notice)
    return watch(run, watcher)


def watch(run: Watched, watcher: Watcher) -> int:
    """Shows progress until the run ends, fails or is told to stop; then the summary. Returns the exit code."""
    failure: PenstockError | None = None
    with _signals_noted() as caught:
        try:
            with watcher:
                while not caught and not run.wait(_LOOK_SECONDS):
                    watcher.show(run.progress())
            if caught:
                watcher.say("stopping: what is committed stays")
                run.stop()
        except PenstockError as error:
            failure = error
    watcher.summary(run.progress(), run.dead_letters)
    if failure is not None and not caught:
        typer.echo(failure.render(), err=True)
        return 1
    return 128 + caught[0] if caught else 0


@contextmanager
def _signals_noted() -> Iterator[list[int]]:
    """Signals that ask for an end are noted, not obeyed at once; the second one is obeyed. Set after the start, because
    Spark installs a handler of its own then, which would cancel its jobs in the middle of a batch."""
    caught: list[int] = []
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def note(number: int, _frame: FrameType | None) -> None:
        caught.append(number)
        signal.signal(number, signal.SIG_DFL)

    for number in _SIGNALS:
        signal.signal(number, note)
    try:
        yield caught
    finally:
        if not caught:
            for number, handler in before.items():
                signal.signal(number, handler)
