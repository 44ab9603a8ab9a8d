"""`penstock run`: start, watch and stop a session."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Protocol

import typer

from penstock.cli.checking import check_sources
from penstock.cli.logs import silence
from penstock.cli.progress import Watcher
from penstock.connectors.sinks.console import send_to
from penstock.connectors.sinks.output import Output, OutputFormat, output
from penstock.errors import PenstockError
from penstock.runtime.monitoring.progress import RunProgress
from penstock.session import Session
from penstock.settings import Settings

_LOOK_SECONDS = 0.25
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Watched(Protocol):
    """The part of a run that the command line uses."""

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
    form: OutputFormat = OutputFormat.TABLE,
    accept_missing: bool = False,
) -> int:
    """Run a script to its end or to a signal; return the exit code. Raises PenstockError for errors before anything
    ran.
    """
    session = Session(settings=settings, master=master)
    execution = session.execute(text, file=name)
    console_queries = [q for q in session.catalog.queries.values() if q.sink.connector == "CONSOLE"]
    # Standard output has only results where a program may read them.
    to_standard_error = bool(console_queries) and form is not OutputFormat.TABLE
    for answer in execution.texts:
        typer.echo(answer, nl=not answer.endswith("\n"), err=to_standard_error)
    if not execution.queries:
        typer.echo(f"{name}: no query to run", err=True)
        return 0
    check_sources(session.catalog.queries.values(), text)
    watcher = Watcher()
    out = output(form, console_queries)
    out.around = watcher.paused
    send_to(out)
    silence(lambda: out.gone)
    for warning in session.warnings:
        typer.echo(warning.render(), err=True)
    watcher.say(f"running {', '.join(execution.queries)} of {name}")
    watcher.phase("starting Spark")
    try:
        run = session.start(
            str(checkpoint) if checkpoint else None,
            drain,
            overwrite,
            backfill=backfill,
            accept_missing_results=accept_missing,
        )
        for notice in run.notices:
            watcher.say(notice)
        return watch(run, watcher, out)
    except PenstockError:
        if not out.gone:
            raise
        return unread()
    finally:
        # Another run of this process has an output of its own, or tables.
        send_to(None)
        if out.broken:
            discard()


def unread() -> int:
    """Return the exit code of a command whose reader has closed standard output."""
    discard()
    return 128 + signal.SIGPIPE


def discard() -> None:
    """Discard what is buffered for standard output: writing it at exit would fail again."""
    with suppress(OSError, ValueError):
        null_device = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null_device, sys.stdout.fileno())
        os.close(null_device)


def watch(run: Watched, watcher: Watcher, out: Output | None = None) -> int:
    """Show progress until the run ends, fails or is stopped; then the summary. Return the exit code. Raises the error
    of a failed run when standard output has been closed.
    """
    failure: PenstockError | None = None
    with _record_signals() as signals:
        try:
            with watcher:
                while not signals and not run.wait(_LOOK_SECONDS):
                    watcher.show(run.progress())
            if signals:
                watcher.say("stopping: what is committed stays")
                run.stop()
            if out is not None:
                out.close()
        except PenstockError as error:
            if out is not None and out.gone:
                raise
            failure = error
    watcher.summary(run.progress(), run.dead_letters)
    if failure is not None and not signals:
        typer.echo(failure.render(), err=True)
        return 1
    return 128 + signals[0] if signals else 0


def _leave_now(number: int, _frame: FrameType | None) -> None:
    """End the process at once, with the code of the signal; results and checkpoint survive it."""
    os._exit(128 + number)


@contextmanager
def _record_signals() -> Iterator[list[int]]:
    """Record signals that request an end without acting on the first; the second one ends the process at once. The
    handlers are set after the start, because Spark installs its own then, which would cancel its jobs in the middle of
    a batch.
    """
    signals: list[int] = []
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}

    def note(number: int, _frame: FrameType | None) -> None:
        signals.append(number)
        for signal_number in _SIGNALS:
            signal.signal(signal_number, _leave_now)

    for number in _SIGNALS:
        signal.signal(number, note)
    try:
        yield signals
    finally:
        if not signals:
            for number, handler in handlers.items():
                signal.signal(number, handler)
