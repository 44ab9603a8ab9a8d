"""The rounds of a run as small files, which Spark's own file source lists and replays.

A round is a folder `rounds/<number>` with one file per ingest task (a `Piece` as JSON); it appears whole, by a rename.
The next round is planned when the answers of the last are delivered and before Spark commits them, so a batch that is
run again finds its round unchanged, and what comes after it is there already. Compared with a reader of our own this
spares Spark the Python processes that it would start to plan a query and to ask for offsets.

Contract: at most one round is outstanding; its content follows from the offset before it and what its predecessor saw
(`feed.py`), so it is the same after a restart.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from penstock.connectors.contract import Split
from penstock.connectors.seals import damaged, sealed, unsealed
from penstock.errors import PenstockError
from penstock.runtime.spark import source_log
from penstock.runtime.spark.epochs import delivered, offset_mark, rounds_place
from penstock.runtime.spark.feed import Feed, Offset, Piece
from penstock.runtime.spark.folder import Folder, Intake, round_name, unwritable

#: Seconds between two looks of an idle run for something new to read.
_LOOK_EVERY = 0.05
#: Rounds kept on disk: Spark may ask for the files of the last batch again.
_KEPT = 4


class Rounds:
    """Plans the rounds of one epoch of a run; lives in the driver. carried: the offset that it begins with, None for
    the beginning of all sources; failure: why no further round can be planned."""

    def __init__(
        self, folder: Folder, intake: Intake, clock: Callable[[], float] = time.monotonic, epoch: int = 0,
        carried: Offset | None = None,
    ) -> None:  # fmt: skip
        self._folder = folder
        self._mark = offset_mark(epoch)
        self._feed = Feed(folder, intake)
        self._pace = intake.pace
        self._clock = clock
        self._began: dict[int, float] = {}
        self._earliest = clock()
        self._took: float | None = None
        #: Bytes of answers of the round delivered last. They follow from the answers alone and are written down with
        #: it, so the next round is planned as it would have been without a crash.
        self._told: int | None = delivered(folder).get("answers")
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        #: Why no more rounds are planned, when something failed while nothing was outstanding.
        self.failure: PenstockError | None = None
        self.place = rounds_place(folder, epoch)
        self.place.mkdir(parents=True, exist_ok=True)
        self._offset: Offset = folder.read_mark(self._mark) or carried or self._feed.start()
        self._delivered = delivered(folder)["round"]
        if not 0 <= self._offset["round"] - self._delivered <= 1:
            lost = FileNotFoundError("it does not tell the round that was read last")
            raise damaged(folder.root / f"{self._mark}.json", lost)
        # A crash may have come between the mark and the folder: the round is made again, the same.
        if self._offset["round"] > self._delivered and not self._folder_of(self._offset["round"]).exists():
            self._publish(self._offset["round"], self._feed.pieces(self._offset["before"], self._offset))
        self._check_outstanding()
        self._advance()
        self._thread = threading.Thread(target=self._poll, name="penstock-rounds", daemon=True)
        self._thread.start()

    def delivered(
        self, number: int, seconds: float | None = None, batch: int | None = None, answers: int | None = None
    ) -> None:
        """The answers of round `number`, so many bytes, are with the sinks, `seconds` after it began: plan what comes
        after it. batch: what they came as; None where every round has been one."""
        with self._lock:
            if number > self._delivered:
                self._delivered = number
                self._took, self._told = seconds, answers
                mark = {"round": number, "batch": number - 1 if batch is None else batch}
                self._folder.write_mark("delivered", mark if answers is None else mark | {"answers": answers})
        self._advance()
        shutil.rmtree(self._folder_of(number - _KEPT), ignore_errors=True)

    @property
    def waiting(self) -> dict[str, int]:
        """Of each topic how many records waited when it was last looked at."""
        return dict(self._feed.waiting)

    def began(self, number: int) -> float | None:
        """When round `number` was given to Spark, by the clock; None when that was another process."""
        return self._began.get(number)

    @property
    def limit(self) -> int:
        """Bytes that the round in hand may read at the most."""
        return self._feed.limit(self._offset)

    def backlog(self) -> dict[str, tuple[int, int]]:
        """By source the splits that have been found and are in no round yet, and their bytes."""
        return self._feed.backlog(self._offset)

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _advance(self) -> None:
        with self._lock:
            if self._offset["round"] > self._delivered or self._clock() < self._earliest:
                return
            before = {k: v for k, v in self._offset.items() if k not in ("before", "tasks")}
            after = self._feed.next(before, self._took, self._told)
            if after == before:
                return
            self._took = None
            pieces = self._feed.pieces(before, after)
            self._offset = {**after, "before": before, "tasks": len(pieces)}
            self._folder.write_mark(self._mark, self._offset)
            self._publish(after["round"], pieces)

    def _poll(self) -> None:
        """What appears while nothing is outstanding (new files of a watched folder) is read too."""
        while not self._stopped.wait(_LOOK_EVERY):
            try:
                self._advance()
            except PenstockError as error:
                self.failure = error
                return
            except OSError as error:
                self.failure = unwritable(self.place, error)
                return
            except Exception as error:
                message = f"no further input can be planned: {type(error).__name__}: {error}"
                self.failure = PenstockError("P0601", message, cause=error)
                return

    def _folder_of(self, number: int) -> Path:
        return self.place / round_name(number)

    def _check_outstanding(self) -> None:
        """Raises PenstockError P0605 where a file of the outstanding round is gone: Spark would read what is there, or
        wait for ever. Marks of before tasks were counted say nothing of it."""
        if self._offset["round"] <= self._delivered:
            return
        target = self._folder_of(self._offset["round"])
        for task in range(self._offset.get("tasks", 0)):
            if not (place := target / _file_name(task)).exists():
                raise damaged(place, FileNotFoundError("it is gone"))

    def _publish(self, number: int, pieces: list[Piece]) -> None:
        target = self._folder_of(number)
        made = self._folder.root / f"round-{target.name}.new"
        try:
            shutil.rmtree(made, ignore_errors=True)
            made.mkdir()
            for piece in pieces:
                path = made / _file_name(piece.task)
                path.write_bytes(sealed(json.dumps(asdict(piece))))
                source_log.stamp(path, number)
            made.rename(target)
        except OSError as error:
            raise unwritable(target, error) from error
        now = self._clock()
        self._began = {number: now}
        self._earliest = now + self._pace.trigger


def _file_name(task: int) -> str:
    return f"{task:05d}.json"


def read_piece(text: bytes) -> Piece:
    """The inverse of what a file of a round holds. Raises PenstockError P0605 where it is damaged."""
    try:
        given = json.loads(unsealed(text))
    except ValueError as error:
        raise damaged(Path("rounds"), error) from error
    given["splits"] = tuple(Split(**split) for split in given["splits"])
    given["ended"] = tuple(given["ended"])
    given["beats"] = tuple((name, beat) for name, beat in given["beats"])
    return Piece(**given)
