"""What a person sees of a run: a progress line that stays in place on a terminal, a line now and then elsewhere, and a
summary at the end. All of it on standard error."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.status import Status
from rich.table import Table

from penstock.errors import counted, malformed_rows
from penstock.runtime.progress import RunProgress, SourceCounts

_LINE_EVERY_SECONDS = 10.0
_LOG_WIDTH = 200


def progress_line(progress: RunProgress) -> str:
    """`1,200 rows in · 80 rows out · heartbeat 2013-01-01T05:00:00Z · 400 rows/s`; where several sources have a
    heartbeat of their own, each of them behind the heartbeat that they make; what waits to be read, if it is much."""
    heartbeat = progress.heartbeat or "none yet"
    each = [f"{name} {counts.heartbeat}" for name, counts in progress.sources.items() if counts.heartbeat]
    if len(each) > 1:
        heartbeat += f" ({', '.join(each)})"
    waiting = sum(counts.waiting for counts in progress.sources.values())
    return (
        f"{counted(progress.rows_in, 'row')} in · {counted(progress.rows_out, 'row')} out · heartbeat {heartbeat}"
        f" · {progress.rows_per_second:,.0f} rows/s"
        + (f" · {waiting / 1e6:,.1f} MB waiting" if waiting >= 50_000 else "")
    )


def _standard_error() -> Console:
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        # A log has no width; what a file path needs must not be folded.
        console.width = _LOG_WIDTH
    return console


class Watcher:
    """Shows the progress of one run. A context: the line in place is there while inside."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or _standard_error()
        self._status: Status | None = None
        self._next_line = time.monotonic() + _LINE_EVERY_SECONDS

    def __enter__(self) -> Watcher:
        if self.console.is_terminal:
            self._status = self.console.status("starting")
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None

    def say(self, text: str) -> None:
        self.console.print(escape(text), soft_wrap=True)

    def show(self, progress: RunProgress) -> None:
        line = progress_line(progress)
        if self._status is not None:
            self._status.update(escape(line))
        elif time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + _LINE_EVERY_SECONDS
            self.say(line)

    def summary(self, progress: RunProgress, dead_letters: str) -> None:
        """dead_letters: where the rows lie that are in no result."""
        self.say(progress_line(progress))
        self.console.print(_sources(progress))
        self.console.print(_queries(progress))
        for name, counts in progress.sources.items():
            if counts.late:
                self._warn(
                    f"{counted(counts.late, 'row')} of {name} came late and came into no result. {_advice(counts)}"
                )
            if counts.malformed:
                reasons = "; ".join(f"{count:,} x {reason}" for reason, count in counts.reasons.items())
                self._warn(malformed_rows(counts.malformed, name) + (f": {reasons}" if reasons else ""))
        if any(counts.late or counts.malformed for counts in progress.sources.values()):
            self.say(f"dead letters: {dead_letters}")

    def _warn(self, text: str) -> None:
        self.console.print(f"[bold red]WARNING:[/] {escape(text)}", soft_wrap=True)


def _advice(counts: SourceCounts) -> str:
    return f"ORDER WITHIN {counts.needed_slack} would have kept them." if counts.needed_slack else ""


def _sources(progress: RunProgress) -> Table:
    table = _table("source", "rows", "late", "malformed", "known to")
    for name, counts in progress.sources.items():
        table.add_row(escape(name), f"{counts.rows:,}", f"{counts.late:,}", f"{counts.malformed:,}", counts.heartbeat)
    return table


def _queries(progress: RunProgress) -> Table:
    table = _table("query", "rows", "final to", "result")
    for name, counts in progress.queries.items():
        table.add_row(escape(name), f"{counts.rows:,}", counts.heartbeat, escape(_near(counts.place)))
    return table


def _near(place: str) -> str:
    """A place below the current folder as a relative path."""
    below = place.removeprefix(f"{Path.cwd()}{os.sep}")
    return below or place


def _table(name: str, *rest: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(name, overflow="fold")
    for heading in rest:
        text = heading in ("result", "final to", "known to")
        table.add_column(heading, justify="left" if text else "right", overflow="fold")
    return table
