"""Show a result in a notebook while it goes on: one output, which is replaced as rows come."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

import pyarrow as pa

from penstock.notebook.latest_rows import LatestRows
from penstock.notebook.result_view import ResultView


class ComingRows(Protocol):
    """Rows that come. `next` returns those since the call before, None when no more come."""

    def next(self, seconds: float) -> pa.Table | None:
        """Wait for rows for at most so many seconds."""


class CellOutput(Protocol):
    """An output of a notebook."""

    def update(self, view: object) -> None: ...


#: Shows something, and returns the output that it has.
Display = Callable[[object], CellOutput]


class _Printed:
    """The output where there is no notebook: lines of text."""

    def __init__(self, view: object) -> None:
        self.update(view)

    def update(self, view: object) -> None:
        sys.stdout.write(f"{view!r}\n")


class OneOutput:
    """Shows all that it is given in the place of the first. display: that of the notebook by default."""

    def __init__(self, display: Display | None) -> None:
        self._display = display
        self._output: CellOutput | None = None

    def __call__(self, view: object) -> CellOutput:
        if self._output is None:
            self._output = (self._display or display_of_notebook())(view)
        else:
            self._output.update(view)
        return self._output


def display_of_notebook() -> Display:
    """Return how this notebook shows something; where there is none, it is printed."""
    try:
        ipython: Any = importlib.import_module("IPython")
    except ImportError:
        return _Printed
    if ipython.get_ipython() is None:
        return _Printed
    shown: Any = importlib.import_module("IPython.display")
    return lambda view: shown.display(view, display_id=True)


def watch(
    title: str,
    source: ComingRows,
    rows: LatestRows,
    seconds: float | None,
    every: float,
    display: Display | None = None,
) -> LatestRows:
    """Show rows as they come until no more come, for some seconds, or until the cell is interrupted; return them.

    Args:
        every: seconds between two updates at least.
        display: shows the output; that of the notebook by default.
    """
    end = None if seconds is None else time.monotonic() + seconds
    output = (display or display_of_notebook())(ResultView(title, "waiting for rows", rows))
    state = "it has ended"
    try:
        while True:
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                state = f"shown for {seconds:g} s"
                break
            part = source.next(every if left is None else min(every, left))
            if part is None:
                break
            if part.num_rows:
                rows.add(part)
                output.update(ResultView(title, f"{rows.count:,} row{'s' * (rows.count != 1)} so far", rows))
                time.sleep(every if left is None else max(0.0, min(every, left)))
    except KeyboardInterrupt:
        state = "interrupted; the query goes on"
    output.update(ResultView(title, f"{rows.count:,} row{'s' * (rows.count != 1)}, {state}", rows))
    return rows
