"""The progress of a run for people: a progress line that is updated in place on a terminal, an occasional line
elsewhere, and a summary at the end. All of it on standard error.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.status import Status
from rich.table import Table

from penstock.errors import counted, malformed_rows
from penstock.runtime.monitoring.progress import RunProgress, SourceCounts

_LINE_EVERY_SECONDS = 10.0
_LOG_WIDTH = 200


def progress_line(progress: RunProgress) -> str:
    """Return `1,200 rows in · 80 rows out · heartbeat 2013-01-01T05:00:00Z · 400 rows/s`. Where several sources have
    heartbeats, each follows the common one; the unread backlog follows if it is large.
    """
    heartbeat = progress.heartbeat or "none yet"
    heartbeats = [f"{name} {counts.heartbeat}" for name, counts in progress.sources.items() if counts.heartbeat]
    if len(heartbeats) > 1:
        heartbeat += f" ({', '.join(heartbeats)})"
    waiting_bytes = sum(counts.waiting for counts in progress.sources.values())
    return (
        f"{counted(progress.rows_in, 'row')} in · {counted(progress.rows_out, 'row')} out · heartbeat {heartbeat}"
        f" · {progress.rows_per_second:,.0f} rows/s"
        + (f" · {waiting_bytes / 1e6:,.1f} MB waiting" if waiting_bytes >= 50_000 else "")
    )


def _standard_error() -> Console:
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        # A log has no width; a file path must not be wrapped.
        console.width = _LOG_WIDTH
    return console


class Watcher:
    """Shows the progress of one run. A context manager: the progress line is shown while inside."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or _standard_error()
        self._status: Status | None = None
        self._next_line = time.monotonic() + _LINE_EVERY_SECONDS
        self._phase = ""
        self._last_line = ""

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

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Hide the progress line while inside, so that results can be written to the same terminal."""
        status = self._status
        if status is None:
            yield
            return
        status.stop()
        try:
            yield
        finally:
            if self._status is status:
                status.start()

    def say(self, text: str) -> None:
        self.console.print(escape(text), soft_wrap=True)

    def phase(self, text: str) -> None:
        """Print once what is in progress before there are any counts."""
        if text == self._phase:
            return
        self._phase = text
        if self._status is not None:
            self._status.update(escape(text))
        else:
            self.say(text)

    def show(self, progress: RunProgress) -> None:
        if not progress.batches:
            self.phase("first batch")
            return
        line = progress_line(progress)
        if self._status is not None:
            self._status.update(escape(line))
        elif time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + _LINE_EVERY_SECONDS
            self._say_progress(line)

    def _say_progress(self, line: str) -> None:
        """Print a progress line, unless it is the last one printed and nothing has changed since."""
        if line != self._last_line:
            self._last_line = line
            self.say(line)

    def summary(self, progress: RunProgress, dead_letters: str) -> None:
        """Print the summary. dead_letters: the folder of rejected rows."""
        self._say_progress(progress_line(progress))
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
        for name, query in progress.queries.items():
            if query.preference:
                self.say(f"{name}: {query.preference}")
            if query.refused:
                reasons = "; ".join(f"{count:,} x {reason}" for reason, count in query.refused.items())
                rows = counted(sum(query.refused.values()), "row")
                self._warn(f"{rows} of {name} cannot be written to {query.place}: {reasons}")
        for name, query in progress.queries.items():
            if query.open_periods:
                periods = counted(query.open_periods, "period")
                self.say(
                    f"{name}: {periods} had not ended, of sessions or under CLOSED; --drain lets time go on for them"
                )
        has_rejected = any(counts.late or counts.malformed for counts in progress.sources.values())
        if has_rejected or any(query.refused for query in progress.queries.values()):
            self.say(f"dead letters: {dead_letters}")

    def _warn(self, text: str) -> None:
        self.console.print(f"[bold red]WARNING:[/] {escape(text)}", soft_wrap=True)


def _advice(counts: SourceCounts) -> str:
    objects = "it" if counts.late == 1 else "them"
    return f"ORDER WITHIN {counts.needed_slack} would have kept {objects}." if counts.needed_slack else ""


def _sources(progress: RunProgress) -> Table:
    table = _table("source", "rows", "late", "malformed", "known to")
    for name, counts in progress.sources.items():
        table.add_row(escape(name), f"{counts.rows:,}", f"{counts.late:,}", f"{counts.malformed:,}", counts.heartbeat)
    return table


def _queries(progress: RunProgress) -> Table:
    """Return the table of queries; if a backfill wrote some rows, a column counts them."""
    backfilled = any(counts.backfilled for counts in progress.queries.values())
    table = _table("query", "rows", *(["backfilled"] if backfilled else []), "final to", "result")
    for name, counts in progress.queries.items():
        backfilled_rows = [f"{counts.backfilled:,}"] if backfilled else []
        table.add_row(
            escape(name), f"{counts.rows:,}", *backfilled_rows, counts.heartbeat, escape(_relative_path(counts.place))
        )
    return table


def _relative_path(place: str) -> str:
    """Return a path below the current folder as a relative path."""
    relative = place.removeprefix(f"{Path.cwd()}{os.sep}")
    return relative or place


def _table(name: str, *headings: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(name, overflow="fold")
    for heading in headings:
        is_text = heading in ("result", "final to", "known to")
        table.add_column(heading, justify="left" if is_text else "right", overflow="fold")
    return table
