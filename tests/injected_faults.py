"""Exceptions that nobody has foreseen, raised at the steps of a command's life.

A step is a function of the program that a command calls, in whichever thread: the exception is raised when it is
called, before it has done anything, or when it returns, after it has done everything. The steps are found by carrying
the command out once while calls are recorded.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

_SOURCE = "/src/penstock/"
_REFERENCE = re.compile(r"\(reference ([0-9a-f]{8})\)")

#: Steps that set flags and hold locks and nothing else. What is raised there ends the control, and nothing is lost.
FLAGS = ("control/transactions/backlog.py:Backlog", "control/transactions/backlog.py:AcceptedItem",
         "control/transactions/request.py:Request.")  # fmt: skip


class Unforeseen(Exception):
    """An error that no code expects."""


@dataclass(frozen=True, order=True)
class Step:
    """A step. event: `call` or `return`."""

    file: str
    function: str
    event: str = "call"

    def __str__(self) -> str:
        return f"{self.file}:{self.function} at {self.event}"


@dataclass
class Faults:
    """Records the steps of a command, or raises at one of them, once. Threads that begin while it is installed are
    watched, and the one that installs it. threads: the beginnings of the names of those that are watched."""

    threads: tuple[str, ...] = ("",)

    _recorded: dict[Step, int] | None = None
    _target: Step | None = None
    has_raised: bool = False
    in_thread: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def _watch(self, frame: FrameType, event: str, argument: Any) -> None:
        if (self._recorded is None and self._target is None) or event not in ("call", "return"):
            return
        code = frame.f_code
        place = code.co_filename.find(_SOURCE)
        if place < 0 or code.co_name.startswith("<") or code.co_flags & 0x20:
            # A generator is left and entered again, and may end without being asked.
            return
        if not threading.current_thread().name.startswith(self.threads):
            return
        step = Step(code.co_filename[place + len(_SOURCE) :], code.co_qualname, event)
        if self._recorded is not None:
            self._recorded[step] = self._recorded.get(step, 0) + 1
        elif step == self._target:
            with self._lock:
                if self.has_raised:
                    return
                self.has_raised, self.in_thread = True, threading.current_thread().name
            raise Unforeseen(f"injected at {step}")

    @contextmanager
    def installed(self) -> Iterator[Faults]:
        before = threading.getprofile()
        threading.setprofile(self._watch)
        sys.setprofile(self._watch)
        try:
            yield self
        finally:
            sys.setprofile(None)
            threading.setprofile(before)  # type: ignore[arg-type]

    def steps(self, action: Callable[[], object]) -> list[Step]:
        """Return the steps of an action, in order."""
        self._recorded = {}
        try:
            action()
        finally:
            found, self._recorded = list(self._recorded), None
        return found

    @contextmanager
    def raised_at(self, step: Step) -> Iterator[None]:
        sys.setprofile(self._watch)
        self.has_raised, self.in_thread, self._target = False, "", step
        try:
            yield
        finally:
            self._target = None


class Logged(logging.Handler):
    """What is logged meanwhile: texts with their tracebacks."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        trace = logging.Formatter().formatException(record.exc_info) if record.exc_info else ""
        self.texts.append(f"{record.getMessage()}\n{trace}")

    def has(self, message: str) -> bool:
        """Return whether the traceback of an error with this message is logged under its reference."""
        found = _REFERENCE.search(message)
        if found is None:
            return False
        return any(found[1] in text and "Traceback" in text for text in self.texts)


@contextmanager
def logged() -> Iterator[Logged]:
    handler, logger = Logged(), logging.getLogger("penstock")
    logger.addHandler(handler)
    try:
        yield handler
    finally:
        logger.removeHandler(handler)
