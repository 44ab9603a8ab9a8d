"""A preparation that reads the past of queries until a test says that it has been read."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from penstock.control.engine import NextVersion


class SteppedReading:
    """A reading of the past that goes on until it is told to be over."""

    def __init__(self, version: NextVersion) -> None:
        self.version = version
        self.share = 0.0
        self.over = threading.Event()
        self.error: Exception | None = None
        self.ended = self.discarded = False

    def read(self) -> None:
        assert self.over.wait(60)
        if self.error is not None:
            raise self.error

    def shares(self) -> Mapping[int, float]:
        return dict.fromkeys(self.version.queries, self.share)

    def end(self) -> None:
        self.ended = True
        self.over.set()

    def discard(self) -> None:
        self.discarded = True
