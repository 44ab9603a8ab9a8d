"""The rounds of a run as small files, which Spark's own file source lists and replays.

A round is a folder `rounds/<number>` with one file per ingest task (its read tasks, `task_files.py`); it appears whole,
by a rename. The next round is planned when the answers of the last are delivered and before Spark commits them, so a
batch that is repeated finds its round unchanged, and the round after it is there already. Compared with a reader
written in Python this saves Spark the Python processes that it would start to plan a query and to request offsets.

Contract: at most one round is outstanding; its content follows from the offset before it and what its predecessor
observed (`input_planner.py`), so it is the same after a restart. Therefore its files are not synced: the offset is on
disk before they appear, and files lost with the power are written again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from penstock.errors import PenstockError, log_internal
from penstock.physical.decisions import Decide
from penstock.runtime.spark.checkpoint.epochs import OFFSET, outstanding_before, read_offset
from penstock.runtime.spark.checkpoint.folder import Delivery, Folder, Intake, round_name, unwritable
from penstock.runtime.spark.checkpoint.offset import Offset
from penstock.runtime.spark.checkpoint.query_failure import QueryFailure
from penstock.runtime.spark.checkpoint.rate_control import RateControl
from penstock.runtime.spark.input import source_log
from penstock.runtime.spark.input.input_planner import InputPlanner, ReadTask
from penstock.runtime.spark.input.known_splits import KnownSplits
from penstock.runtime.spark.input.round_history import RoundHistory
from penstock.runtime.spark.input.task_files import file_name, file_text, load_read_tasks, shared_files
from penstock.runtime.spark.retention.retention import Retention
from penstock.storage import storage
from penstock.storage.seals import damaged

T = TypeVar("T")

#: Maximum and minimum seconds until an idle run looks for input again.
_LOOK_EVERY, _LEAST_WAIT = 0.05, 0.005
#: Rounds kept on disk: Spark may request the files of the last batch again.
_KEPT = 4


@dataclass(frozen=True)
class RoundChange:
    """How the rounds continue after a change of the plan.

    Args:
        epoch: whose plan the next round runs.
        offset: at which it begins.
        planner: plans them (`RoundLog.planner_after`).
    """

    intake: Intake
    epoch: int
    offset: Offset
    planner: InputPlanner


class RoundLog:
    """Plans the rounds of a run; lives in the driver.

    Args:
        epoch: the epoch whose plan the next round runs.
        carried: the offset at which that epoch begins, None for the beginning of all sources.
        history: whether what the rounds read is recorded, for queries that begin later; it is where relations are read,
            with whose content queries of a changed script begin.
        abandoned: returns whether the rounds do not run any more, so that the outstanding one will not be delivered.
        decide: as of the planner.
    """

    def __init__(
        self,
        folder: Folder,
        intake: Intake,
        clock: Callable[[], float] = time.monotonic,
        epoch: int = 0,
        carried: Offset | None = None,
        history: bool = False,
        abandoned: Callable[[], bool] = lambda: False,
        decide: Decide | None = None,
    ) -> None:
        self._is_abandoned = abandoned
        self._folder = folder
        self._epoch = epoch
        self._planner = InputPlanner(folder, intake, decide=decide)
        self._rate_control = intake.pace
        self._births = intake.births
        relations = any(not source.is_stream for source in intake.sources)
        self._history = RoundHistory(folder) if history or relations else None
        self._clock = clock
        self._publish_times: dict[int, float] = {}
        self._earliest_start = clock()
        self._round_seconds: float | None = None
        #: Bytes of answers of the round delivered last. They follow from the answers alone and are stored with its
        #: delivery mark, so the next round is planned as it would have been without a crash.
        self._answer_bytes: int | None = folder.delivered().answers
        #: Whether it left answers to the next one.
        self._is_behind = bool(folder.delivered().behind)
        self._lock = threading.Lock()
        #: Signals that a round is delivered, or that no more are planned.
        self._state_changed = threading.Condition(self._lock)
        #: Changes that wait for the end of the outstanding round; none is planned before they are made, but for the
        #: first of an epoch.
        self._pending_changes = 0
        #: Whether a change of the plan has to come before the next round.
        self._change_required = False
        #: Whether a round with the plan of the present epoch has been delivered.
        self._has_run = False
        self._stopped = threading.Event()
        #: The error of a look while a round was outstanding; raised when the next one is planned.
        self._look_failure: Exception | None = None
        #: The error for which no more rounds are planned, if one occurred while nothing was outstanding.
        self.failure: PenstockError | None = None
        self.place = folder.root / "rounds"
        try:
            storage().make_folder(self.place)
        except OSError as error:
            raise unwritable(self.place, error) from error
        reached = read_offset(folder, epoch)
        self._offset = reached or carried or self._planner.start()
        #: The tasks of the outstanding round, alone and by file, while they are not written.
        self._unwritten: tuple[list[ReadTask], list[tuple[ReadTask, ...]]] | None = None
        self._delivered_round = folder.delivered().round
        self._has_run = reached is not None and reached.round <= self._delivered_round
        if not self._has_run and self._offset.round == self._delivered_round:
            # Changes wait for the first round of the epoch, which comes without input too.
            self._offset = self._with_progress(self._offset)
        #: When that was delivered, in seconds since 1970; None where another process did it.
        self.delivered_at: float | None = None
        #: Whether all sources had ended with the round delivered last.
        self._all_ended = bool(folder.delivered().ended)
        if (abandoned_round := outstanding_before(folder, epoch)) is not None:
            self._remove_round(abandoned_round)
        if not 0 <= self._offset.round - self._delivered_round <= 1:
            cause: Exception = FileNotFoundError("it does not contain the round that was read last")
            raise damaged(folder.root / f"{OFFSET}.json", cause)
        if storage().exists(self._folder_of(self._offset.round + 1)):
            # The offset of a round is written before the round appears.
            cause = ValueError(f"it is older than {self.place}")
            raise damaged(folder.root / f"{OFFSET}.json", cause)
        self._planner.check(self._offset)
        self._retention = Retention(folder, self._delivered_round)
        #: What is read from the next round on, while it is not retained yet.
        self._unretained: Intake | None = intake
        self._retain()
        if self._offset.round > self._delivered_round:
            self._mend_outstanding()
        self._check_outstanding()
        self._remove_old()
        self._advance()
        self._thread = threading.Thread(target=self._poll, name="penstock-rounds", daemon=True)
        self._thread.start()

    def delivered(
        self,
        number: int,
        seconds: float | None = None,
        batch: int | None = None,
        answers: int | None = None,
        ended: bool = False,
        failed: Mapping[str, QueryFailure] | None = None,
        behind: bool = False,
    ) -> None:
        """Record the delivery of round `number`, and plan the next.

        Args:
            seconds: duration of the round.
            batch: the batch of its answers, None where every round has been one batch.
            answers: bytes of its answers.
            ended: whether all sources had ended with it.
            failed: the queries that failed in it. No round is planned before the plan has changed.
            behind: whether answers are due that later rounds emit; one follows then, also without input.
        """
        with self._lock:
            if number > self._delivered_round:
                seen = self._folder.read_seen(round_name(number))
                # Written first: otherwise the thread would plan the next round after a failure to write it.
                batch = number - 1 if batch is None else batch
                self._folder.write_delivered(
                    Delivery(number, batch, seen, answers, ended or None, failed or None, behind or None)
                )
                self._delivered_round, self._all_ended, self._change_required = number, ended, bool(failed)
                self._has_run = True
                self.delivered_at = time.time()
                self._round_seconds, self._answer_bytes, self._is_behind = seconds, answers, behind
                self._retention.delivered(number, self._offset.after(seen))
                self._state_changed.notify_all()
        self._try_to_advance()
        storage().remove_tree(self._folder_of(number - _KEPT))

    def change(self, begin: Callable[[], RoundChange | None], after_failure: bool = False) -> None:
        """Change what is read between two rounds, once none is outstanding and the present epoch has had a round: what
        its queries have read of their past joins the state in its first round, so a change before that would lose it.

        Args:
            begin: carries the change out and returns how the next round continues, None for as before. What it raises
                is raised, and changes nothing here.
            after_failure: the change leaves out the queries that failed in the round delivered last; nothing is done
                where another change came first, which has left them out. Called by the thread that delivers rounds,
                which must not wait for one.

        Raises:
            PenstockError: P0701 where no more rounds come.
        """
        try:
            self._change(begin, after_failure)
        finally:
            if not self._stopped.is_set():
                self._try_to_advance()

    def planner_after(self, intake: Intake) -> InputPlanner:
        """Return what plans the rounds after a change that is to come. intake: that of its plan."""
        return InputPlanner(self._folder, intake, before=self._planner)

    def _retain(self) -> None:
        """Begin to retain the streams of the present epoch, unless that is done."""
        if self._unretained is not None:
            self._retention.begin(self._unretained, self._with_progress(self._offset).high)
            self._unretained = None

    def _change(self, begin: Callable[[], RoundChange | None], after_failure: bool) -> None:
        with self._state_changed:
            self._pending_changes += 1
            try:
                if after_failure and not self._change_required:
                    return
                while (self.outstanding or not self._has_run) and not self._is_over:
                    self._state_changed.wait(_LOOK_EVERY)
                if self._is_over:
                    raise PenstockError("P0701", "the run has ended, so it cannot be changed", hint="start it again")
                change = begin()
                if change is not None:
                    self._change_required, self._has_run, self._look_failure = False, False, None
                    self._planner = change.planner
                    self._epoch, self._offset, self._rate_control = change.epoch, change.offset, change.intake.pace
                    self._earliest_start = self._clock()
                    self._births, self._unretained = change.intake.births, change.intake
                    try:
                        self._retain()
                    except Exception as error:
                        # The change has happened. Nothing is read before it is tried again.
                        log_internal(error, "what streams retain cannot be begun")
            finally:
                self._pending_changes -= 1

    def steer(self, pace: RateControl) -> None:
        """Set how fast input is taken from now on."""
        with self._state_changed:
            self._planner.steer(pace)
            self._rate_control = pace

    def _with_progress(self, offset: Offset) -> Offset:
        """Return an offset with the progress of the sources up to the round that was delivered last."""
        after = self._offset
        if after.round <= self._delivered_round:
            after = after.after(self._folder.seen_in(round_name(after.round)))
        known = replace(offset, punctuations=dict(after.punctuations))
        return replace(known, high=dict(after.high), beats=dict(after.beats), again=True)

    def delivered_state(self, begin: Callable[[Offset, int], T], shown: int = -1) -> T:
        """Return what `begin` returns of the offset at which the round delivered last ended, its largest timestamps
        included, and of the batch of its answers. Meanwhile no round is delivered, and nothing that is retained is
        removed.

        Args:
            shown: the last batch of which readers have seen answers. They become visible a moment before the batch
                counts as delivered; the call waits for that, so that no reader sees an earlier state afterwards.
        """
        with self._state_changed:
            while self.outstanding and self._folder.delivered().batch < shown and not self._is_over:
                self._state_changed.wait(_LOOK_EVERY)
            offset = self._before_outstanding() if self.outstanding else self._offset
            delivered = self._with_progress(offset.planned())
            return begin(delivered, self._folder.delivered().batch)

    def punctuations(self) -> dict[str, int]:
        """Return by source how many punctuations it keeps, about; where it keeps some."""
        with self._state_changed:
            places = self._with_progress(self._offset).punctuations
        return {name: place.count for name, place in places.items()}

    def splits(self, file: str) -> KnownSplits | None:
        """Return the splits that have been found of a source, by the name of their file (`source_file`); None where the
        present plan does not read it. Takes no lock, so that readers may hold their own ones."""
        return self._planner.splits_of(file)

    def release(self, file: str, splits: int, most: int) -> int | None:
        """Forget the first splits of a relation, unless readers need some of them; return up to how many are forgotten,
        None where a reader needs them. Arguments as those of the planner."""
        with self._lock:
            return self._planner.release(file, splits, most) if self._retention.releases(file, splits) else None

    @property
    def _is_over(self) -> bool:
        """Return whether no more rounds come, or none with input."""
        return self._stopped.is_set() or self._all_ended or self.failure is not None or self._is_abandoned()

    @property
    def outstanding(self) -> bool:
        """Return whether a round is published and not delivered yet."""
        return self._offset.round > self._delivered_round

    def check_due(self, number: int, log: Path) -> None:
        """Check that round `number`, whose answers arrived, is the outstanding one or the last delivered one, which
        Spark repeats. Raises PenstockError P0605 where Spark's `log` is of another.
        """
        with self._lock:
            if not self._delivered_round <= number <= self._delivered_round + 1:
                raise damaged(
                    log, ValueError(f"it contains round {number}, and round {self._delivered_round} came last")
                )

    @property
    def waiting(self) -> dict[str, int]:
        """Return, by topic, the number of records that waited at the last look."""
        return dict(self._planner.waiting)

    def began(self, number: int) -> float | None:
        """Return the clock time at which round `number` was published; None when another process did that."""
        return self._publish_times.get(number)

    @property
    def limit(self) -> int:
        """Maximum bytes that the outstanding round may read."""
        return self._planner.limit(self._offset)

    def backlog(self) -> dict[str, tuple[int, int]]:
        """Return by source the discovered splits that are in no round yet, and their bytes."""
        return self._planner.backlog(self._offset)

    def unread(self) -> dict[str, int]:
        """Return by source the bytes of its input that are in no round yet, or the records of its topic, where there
        are some."""
        found = {name: count for name, count in self.waiting.items() if count}
        return found | {name: size for name, (_, size) in self.backlog().items() if size}

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _try_to_advance(self) -> None:
        """Plan the next round at once. What has been delivered or changed stays so where that fails: the thread tries
        again, and only what it meets then ends the run."""
        try:
            self._advance()
        except PenstockError:
            pass
        except Exception as error:
            log_internal(error, "the next round cannot be planned yet")

    def _advance(self) -> None:
        with self._lock:
            if self._unwritten is not None:
                self._write_round(*self._unwritten)
                return
            if self._change_required or (self._pending_changes and self._has_run):
                return
            if self._clock() < self._earliest_start:
                return
            if self._offset.round > self._delivered_round:
                self._look_ahead()
                return
            if self._look_failure is not None:
                raise self._look_failure
            self._retain()
            before = self._offset.planned()
            # Changes wait for the first round of an epoch, which therefore waits for nothing.
            after = self._planner.next(
                before, self._round_seconds, self._answer_bytes, self._is_behind, at_once=not self._has_run
            )
            if after == before:
                return
            self._round_seconds = None
            tasks = self._planner.pieces(before, after)
            files = self._files(tasks)
            self._offset = replace(after, before=before, tasks=len(files), epoch=self._epoch)
            self._unwritten = tasks, files
            self._write_round(tasks, files)

    def _write_round(self, tasks: list[ReadTask], files: list[tuple[ReadTask, ...]]) -> None:
        """Write the outstanding round; called again where it fails."""
        self._record(self._offset.round, tasks)
        self._folder.write_mark(OFFSET, self._offset.as_json())
        if not storage().exists(self._folder_of(self._offset.round)):
            self._publish(self._offset.round, files)
        self._unwritten = None

    def _look_ahead(self) -> None:
        """Look for input while a round is outstanding, so that the next one does not wait for that."""
        if self._look_failure is None:
            try:
                self._planner.discover(self._offset)
            except Exception as failure:
                # What this round answers comes first.
                self._look_failure = failure

    def _files(self, tasks: Sequence[ReadTask]) -> list[tuple[ReadTask, ...]]:
        """Return the read tasks of a round by file."""
        return shared_files(tasks, self._planner.parallelism, self._planner.logs)

    def _record(self, number: int, tasks: list[ReadTask]) -> None:
        if self._history is not None:
            self._history.note(number, tasks, self._births)

    def _poll(self) -> None:
        """Read input that appears while nothing is outstanding too (new files of a watched folder)."""
        while not self._stopped.wait(self._wait):
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

    @property
    def _wait(self) -> float:
        """Seconds until the next look. The end of an outstanding round needs none: `delivered` is called."""
        if self._offset.round > self._delivered_round:
            return _LOOK_EVERY
        return min(_LOOK_EVERY, max(_LEAST_WAIT, self._planner.wait))

    def _folder_of(self, number: int) -> Path:
        return self.place / round_name(number)

    def _remove_round(self, number: int) -> None:
        """Remove a round of an earlier version of the plan that has not been delivered. It is planned anew, so its
        files are not to come back when the power goes."""
        if storage().exists(self._folder_of(number)):
            storage().remove_tree(self._folder_of(number))
            storage().sync(self.place)

    def _remove_old(self) -> None:
        """Remove the rounds that `delivered` did not come to remove before a crash. Spark forgets which files it read
        long ago (`source_log.py`), and would read them again."""
        newest = round_name(max(self._delivered_round - _KEPT, 0))
        for name in storage().list(self.place):
            if name <= newest:
                storage().remove_tree(self.place / name)

    def _mend_outstanding(self) -> None:
        """Restore the files of the outstanding round, the same as before.

        A crash may have come between the mark and the folder, and a loss of power may have taken files that were not
        synced. Spark may know the names of the files already, so nothing is written again that would now have another
        number of tasks.
        """
        target = self._folder_of(self._offset.round)
        tasks = self._planner.pieces(self._before_outstanding(), self._offset)
        self._record(self._offset.round, tasks)
        # With more processors than now each task may have had a file of its own.
        each_alone = len(tasks) == self._offset.tasks
        files = [(task,) for task in tasks] if each_alone else self._files(tasks)
        if not storage().exists(target):
            self._publish(self._offset.round, files)
        elif len(files) == self._offset.tasks and not all(self._is_whole(target, n) for n in range(len(files))):
            storage().remove_tree(target)
            self._publish(self._offset.round, files)

    def _before_outstanding(self) -> Offset:
        """Return the offset before the outstanding round. Raises PenstockError P0605 where its mark lacks it."""
        if self._offset.before is None:
            raise damaged(self._folder.root / f"{OFFSET}.json", ValueError("it lacks the offset before its round"))
        return self._offset.before

    def _is_whole(self, target: Path, file: int) -> bool:
        try:
            load_read_tasks(self._folder, target / file_name(file))
        except PenstockError:
            return False
        return True

    def _check_outstanding(self) -> None:
        """Check that no file of the outstanding round is lost: Spark would read the remaining ones, or wait for ever.
        Raises PenstockError P0605."""
        if self._offset.round <= self._delivered_round:
            return
        target = self._folder_of(self._offset.round)
        for number in range(self._offset.tasks):
            if not storage().exists(path := target / file_name(number)):
                raise damaged(path, FileNotFoundError("it is gone"))

    def _publish(self, number: int, files: Sequence[Sequence[ReadTask]]) -> None:
        target = self._folder_of(number)
        temporary = self._folder.root / f"round-{target.name}.new"
        disk = storage()
        try:
            disk.remove_tree(temporary)
            disk.make_folder(temporary, durable=False)
            for place, tasks in enumerate(files):
                name = file_name(place)
                with disk.create(temporary / name) as file:
                    file.write(file_text(self._folder, target / name, tasks))
                source_log.stamp(temporary / name, number)
            disk.rename(temporary, target)
        except OSError as error:
            raise unwritable(target, error) from error
        now = self._clock()
        self._publish_times = {number: now}
        self._earliest_start = now + self._rate_control.trigger
