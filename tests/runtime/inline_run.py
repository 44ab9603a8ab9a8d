"""A run without Spark: the same folder, rounds, state files and sinks, every round in this process, crashes at will."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.algebra.nodes.scans import Source
from penstock.connectors.deadletters import DeadLetters
from penstock.runtime.decisions.deciders import QueryPolicies
from penstock.runtime.monitoring.metrics import RunMetrics
from penstock.runtime.monitoring.recorder import Recorder
from penstock.runtime.rejected_rows import write_rejections
from penstock.runtime.reporting import Reporter, ReportOptions
from penstock.runtime.spark.changes.prefetch import Prefetch
from penstock.runtime.spark.checkpoint.folder import Folder, Job, Seen
from penstock.runtime.spark.checkpoint.query_failure import QueryFailure
from penstock.runtime.spark.checkpoint.state_files import sweep
from penstock.runtime.spark.hydration.kept_relations import KeptRelations
from penstock.runtime.spark.input.round_log import RoundChange, RoundLog
from penstock.runtime.spark.input.task_files import load_read_tasks
from penstock.runtime.spark.live_change import begin_change, leave_out
from penstock.runtime.spark.output.batch_logs import commit_logs
from penstock.runtime.spark.output.checked_rows import record_rejected
from penstock.runtime.spark.output.delivery import SinkIsolation, deliver_answers
from penstock.runtime.spark.output.result_parts import ResultParts
from penstock.runtime.spark.output.surplus import SurplusAnswers
from penstock.runtime.spark.output.totals import RunTotals
from penstock.runtime.spark.output.undelivered import UndeliveredAnswers
from penstock.runtime.spark.output.withheld import AnswerGate, ShownAnswers
from penstock.runtime.spark.start import begin
from penstock.runtime.spark.version import JobChange, OlderVersions
from penstock.runtime.spark.work import Work
from penstock.runtime.spark.worker import stage
from penstock.runtime.spark.worker.answer_writer import PendingAnswer
from penstock.runtime.spark.worker.inline import Outcome, run_round
from penstock.runtime.spark.worker.packets import Heartbeats
from penstock.session import Session

#: Where a run may die: before a round's state is written, after it, between two sinks, with all answers written.
CRASHES = ("state", "sinks", "between", "delivered")


class Crash(Exception):
    """The process is gone."""


class InlineRun:
    """One start of a script. parallelism: tasks that read side by side; options: further fields of `Work`."""

    def __init__(
        self,
        script: str,
        checkpoint: Path,
        overwrite: bool = False,
        backfilled: bool = False,
        drain: bool = False,
        parallelism: int = 2,
        accept_missing: bool = False,
        **options: Any,
    ) -> None:
        self._begin(
            replace(_work(script, drain), backfill=backfilled, accept_missing=accept_missing, **options),
            checkpoint,
            overwrite,
            parallelism,
            options,
        )

    @classmethod
    def of(cls, work: Work, checkpoint: Path) -> InlineRun:
        """The start of what a server gives a run to do."""
        run = cls.__new__(cls)
        run._begin(work, checkpoint, False, 2, {})
        return run

    def _begin(self, work: Work, checkpoint: Path, overwrite: bool, parallelism: int, options: dict[str, Any]) -> None:
        self.options = options
        self.folder = Folder(checkpoint / "penstock")
        self.checkpoint = checkpoint
        begun = begin(work, self.folder, overwrite, lambda: parallelism)
        self.decision, self.sinks, self.job, self.work = begun.decision, begun.sinks, begun.job, begun.work
        self.epoch = self.decision.epoch
        #: The queries that were left out since they failed, with their errors.
        self.failed: dict[str, QueryFailure] = {}
        self.older = OlderVersions(self.folder, self.job.epoch > 0)
        sweep(self.folder.root)
        self.tables = self.folder.read_tables(self.job.plan.statics)
        self.rounds = RoundLog(
            self.folder,
            self.job.intake,
            epoch=self.job.epoch,
            carried=self.decision.epoch.offset,
            history=options.get("live", True),
        )
        # What Spark's log says: the batch that was started last is done again unless the next has been started.
        self.batch = self.folder.delivered().batch + 1
        self.heartbeats: Heartbeats | None = None
        self.behind: dict[str, int] = {}
        self.surplus = SurplusAnswers(self.folder)
        self.parts = ResultParts(self.folder)
        self.gate = AnswerGate(self.folder)
        self.accounts = RunTotals(self.folder)
        self.recorder = Recorder(self.job.plan, {})
        self.recorder.resumed(self.accounts.totals({}, {}, 0))
        self.reporter = Reporter(self.recorder, ReportOptions(), RunMetrics)
        self.relations = KeptRelations(self.folder)
        #: What was seen before the first round and in each round of this start; the folder keeps the last ones alone.
        before = [name for name in self.folder.rounds() if not name.isdigit()]
        self.seen: dict[str, dict[str, Seen]] = {name: self.folder.read_seen(name) for name in before}

    def work_of(self, script: str, backfill: bool = False, **options: Any) -> Work:
        """What a change to `script` is to do."""
        self.options |= options
        return replace(_work(script, self.job.drain), backfill=backfill, **self.options)

    def change(
        self,
        script: str,
        backfilled: bool = False,
        overwrite: bool = False,
        crash: bool = False,
        ahead: Prefetch | None = None,
        **options: Any,
    ) -> InlineRun:
        """Go on with another script when the outstanding round is done.

        Args:
            crash: die when the change is on disk.
            ahead: what new queries have read before.
            options: further fields of `Work`; those of the run's start stay where they say nothing.
        """
        work = self.work_of(script, backfill=backfilled, **options)
        self.adopt(lambda: begin_change(self.folder, self, work, overwrite, ahead), crash)
        return self

    def adopt(self, changing_work: Callable[[], JobChange | None], crash: bool = False) -> None:
        """Change when the outstanding round is done. crash: die when the change is on disk."""

        def begin() -> RoundChange | None:
            return self._adopted(changing_work(), crash)

        failures: list[BaseException] = []

        def changing() -> None:
            try:
                self.rounds.change(begin)
            except BaseException as failure:
                failures.append(failure)

        thread = threading.Thread(target=changing)
        thread.start()
        while not self.rounds._pending_changes and thread.is_alive():
            time.sleep(0.001)
        if self.pending():
            self.step()
        thread.join()
        for failure in failures:
            self.rounds.stop() if isinstance(failure, Crash) else None
            if not isinstance(failure, Crash):
                raise failure

    def _adopted(self, changed: JobChange | None, crash: bool = False) -> RoundChange | None:
        """Go on with another plan; crash: die when it is on disk."""
        if changed is None:
            return None
        if crash:
            # A process that is gone plans nothing more.
            self.rounds._pending_changes += 1
            raise Crash
        self.work, self.epoch = changed.work, changed.epoch
        if changed.offset is None:
            return None
        dropped = [sink for name, sink in self.sinks.items() if changed.sinks.get(name) is not sink]
        self.job, self.sinks, self.notices = changed.job, dict(changed.sinks), changed.notices
        self.older.add()
        self.tables = self.folder.read_tables(self.job.plan.statics)
        self.accounts, self.parts = self.accounts.reread(self.job.plan), ResultParts(self.folder)
        self.reporter.changed(self.job.plan, {}, QueryPolicies(), 0.0, changed.horizons)
        for sink in dropped:
            sink.close()
        planner = self.rounds.planner_after(self.job.intake)
        return RoundChange(self.job.intake, self.job.epoch, changed.offset, planner)

    @property
    def ended(self) -> bool:
        return self.heartbeats is not None and self.heartbeats.ended and not self.behind

    def run(self, rounds: int = 10**6, crash: str | None = None) -> InlineRun:
        """So many rounds, or all there are; `crash`: where the one behind them dies."""
        for number in range(rounds + (crash is not None)):
            if self.ended or not self.pending():
                break
            try:
                self.step(crash if number == rounds else None)
            except Crash:
                break
        self.rounds.stop()
        return self

    def go(self, rounds: int) -> InlineRun:
        """So many rounds, after which the run goes on."""
        for _ in range(rounds):
            if not self.ended and self.pending():
                self.step()
        return self

    def pending(self) -> list[Path]:
        """The files of the round that is due."""
        due = self.folder.delivered().round + 1
        return sorted((self.rounds.place / f"{due:09d}").glob("*.json"))

    def step(self, crash: str | None = None) -> None:
        files = self.pending()
        if crash == "state":
            raise Crash
        outcome = run_round(
            self.folder, self.job, self.tables, [load_read_tasks(self.folder, f) for f in files], self.batch
        )
        for report in outcome.reports:
            self.reporter.report(report)
        if crash == "sinks":
            raise Crash
        letters = DeadLetters(self.folder.dead_letters)
        rejected = write_rejections(outcome.rejected, self.job.plan.sources, letters, self.batch)
        rows, failed, shown = self._deliver(outcome, crash == "between")
        beats = {} if outcome.heartbeats is None else {**outcome.heartbeats.queries, **outcome.reached}
        commit_logs(self.sinks, self.batch, shown.heartbeats(beats, outcome.failed))
        self.parts.note(self.batch, rows, self.sinks)
        if outcome.heartbeats is not None:
            self.accounts.set_heartbeats(beats, outcome.heartbeats.sources)
        self.accounts.delivered(self.batch, rows, rejected, self.recorder)
        if crash == "delivered":
            raise Crash
        self.heartbeats = outcome.heartbeats
        self.behind = {name: tick for name, tick in outcome.reached.items() if name not in failed}
        self.seen[files[0].parent.name] = self.folder.read_seen(files[0].parent.name)
        self.accounts.close_batch()
        self.reporter.batch(self.batch, 0.0, 0.0, 1, self.accounts.totals({}, {}, 0), {}, tuple(failed))
        statics = {name for plan in self.job.plan.statics.values() for name in plan.sources}
        self.older.delivered(self.job, self.batch, {*self.job.plan.sources, *statics})
        number = int(files[0].parent.name)
        self.rounds.delivered(number, batch=self.batch, failed=failed, behind=bool(self.behind))
        if crash == "marked":
            raise Crash
        if failed and not self.ended:
            self.failed |= failed
            self.rounds.change(lambda: self._adopted(leave_out(self.folder, self, failed), crash == "left out"))
        self.batch += 1

    def _deliver(self, outcome: Outcome, crash: bool) -> tuple[dict[str, int], dict[str, QueryFailure], ShownAnswers]:
        """Write the answers of a round; return the rows of each, the queries that failed, and what sinks received.

        Args:
            crash: die behind the first sink.
        """
        failed = {name: replace(failure, batch=self.batch) for name, failure in outcome.failed.items()}
        isolation = SinkIsolation(UndeliveredAnswers(self.folder), 0) if self.job.isolated else None
        answers = {
            name: [(self.job.keys[0], [PendingAnswer.of(part) for part in parts if len(part)])]
            for name, parts in outcome.answers.items()
        }
        valid = {name: chunks for name, chunks in answers.items() if name not in failed}
        record_rejected(self.folder, self.job, valid, int(self.pending()[0].parent.name))
        behind = {name: tick for name, tick in outcome.reached.items() if name not in failed}
        valid = self.surplus.until(self.job.plan, valid, behind, self.batch)
        beats = {} if outcome.heartbeats is None else {**outcome.heartbeats.queries, **behind}
        shown = self.gate.shown(self.epoch, self.job, valid, beats, self.batch)
        rows: dict[str, int] = {}
        for name in (name for name in self.sinks if name not in failed and name not in shown.withheld):
            rows[name] = deliver_answers(self.job, self.sinks, [name], shown.answers, self.batch, isolation)[name].rows
            if crash:
                raise Crash
        if isolation is not None:
            failed |= isolation.failed
        return {name: count for name, count in rows.items() if name not in failed}, failed, shown


def _work(script: str, drain: bool) -> Work:
    session = Session()
    session.execute(script, live=True)
    return session._work(list(session.catalog.queries.values()), drain)


def declared(script: str) -> dict[str, Source]:
    """The sources that a script declares, as a server keeps them."""
    session = Session()
    session.execute(script, live=True)
    return {source.name: source for source in session.catalog.sources.values()}


def cold() -> None:
    """Another process: no executor is kept."""
    stage._WARM.clear()


def lived(script: str, folder: Path, names: Collection[str], crash: str | None) -> dict[str, list[str]]:
    """Run a script over all its input, with a death in every second round where `crash` says at which point; return by
    query the lines of its results, which are CSV in a folder of its name, in the order of the text."""
    cold()
    for _ in range(30):
        run = InlineRun(script, folder / "checkpoint")
        run.run(1, crash) if crash is not None else run.run()
        cold()
        if run.ended:
            texts = {name: [file.read_text() for file in sorted((folder / name).glob("*.csv"))] for name in names}
            return {
                name: sorted(line for text in some for line in text.splitlines()[1:]) for name, some in texts.items()
            }
    raise AssertionError("it does not end")


def write_files(folder: Path, numbers: range, rows: int = 20, groups: int = 3) -> None:
    """Files of a stream (ts, k, x), in order of time."""
    folder.mkdir(exist_ok=True)
    for i in numbers:
        ts = list(range(i * rows, i * rows + rows))
        table = pa.table(
            {"ts": pa.array(ts, pa.int64()), "k": pa.array([t * 7 % groups for t in ts], pa.int32()),
             "x": pa.array([t * 13 % 17 for t in ts], pa.int64())}
        )  # fmt: skip
        pq.write_table(table, folder / f"part-{i:04d}.parquet")


def read_beside(run: InlineRun, ahead: Prefetch | None, batch: int) -> Job:
    """Read the past of new queries while the run goes on up to a batch; return the job that they are to join. What the
    run reads meanwhile is read too."""
    assert ahead is not None and ahead.catching_up is not None
    reading, shares = ahead.catching_up, list[float]()

    def go_on(seconds: float) -> None:
        shares.append(reading.share)
        if run.batch < batch:
            run.go(1)

    ahead.read(go_on)
    assert reading.reached >= batch - 1 and shares[0] < 1.0 and shares[-1] == 1.0
    return reading.job
