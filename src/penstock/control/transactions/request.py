"""What is requested of the acceptor, from then until it is answered."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.control.command_log import Transaction
from penstock.control.drafting.contents import BoundStatement, Content
from penstock.control.registry import Registry


@dataclass(eq=False)
class Request:
    """What is requested, and its answer.

    Args:
        bound: the statements of a script, or those of the difference, once they are bound.
        transaction: as it stands in the log; None before, and where it changes nothing.
        after: the declarations with what a script changes that is rolled back.
        error: for which it was refused.
        repeated: it was posted before with the same key.
        accepted: it is in the log, or refused.
        finished: it has been applied, failed, or reads its past.
    """

    content: Content
    bound: Sequence[BoundStatement] = ()
    transaction: Transaction | None = None
    after: Registry | None = None
    error: BaseException | None = None
    repeated: bool = False
    accepted: threading.Event = field(default_factory=threading.Event)
    finished: threading.Event = field(default_factory=threading.Event)

    def refuse(self, error: BaseException) -> None:
        """Answer with an error, unless it has been answered."""
        if not self.finished.is_set():
            self.error = error
            self.done()

    def done(self) -> None:
        """Answer."""
        self.accepted.set()
        self.finished.set()
