"""What `EXPLAIN SHARING` and `penstock.queries` say in random lives: the bytes of all queries are those of the state,
and what is said to be shared is one object."""

from __future__ import annotations

from collections import Counter

import pytest

from penstock.control.entities.queries import QueryRow
from penstock.control.entities.sharing import sharing_of
from penstock.control.entities.system import SystemView
from penstock.physical.execution.meter import StateGauge, SynopsisSize
from tests.control.test_control_law import CrashingLives
from tests.live_machine import EDITS, random_life

CASES, MANY_CASES = 4, 200
#: Bytes of a step, of some columns of a few rows.
PUT_TOGETHER = 8


class ObservedLives(CrashingLives):
    """A life that is looked at after each round. seen: what was found."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def advance(self) -> None:
        super().advance()
        # What has changed since the round is measured with the next one.
        self.engine.engine.round()
        view = self.engine.control.view()
        self.check_bytes(view)
        self.check_shared(view)

    def check_bytes(self, view: SystemView) -> None:
        live = self.engine.engine._live
        held = Counter[str]()
        for row in live._job.stages:
            for executor in row:
                keys = {step.id: executor._keys[step.id] for step in executor._graph.steps}
                for number, operator in executor._operators.items():
                    sizes = map(SynopsisSize.of, operator.synopses().values())
                    held[keys[number]] += sum(size.bytes for size in sizes)
        measured = Counter({key: nbytes for key, (_, nbytes) in view.state_of_steps.items()})
        # A table that is saved after it was measured is put together, and its bits of NULLs take some bytes less.
        wrong = {key for key in measured | held if not 0 <= measured[key] - held[key] <= PUT_TOGETHER}
        assert not wrong, (wrong, measured, held)
        rows = [QueryRow(view, one) for one in view.listed]
        told = [row.sizes for row in rows if row.sizes is not None]
        total = sum(own + shared for own, shared, _ in told)
        # Each is rounded.
        assert abs(total - measured.total()) <= len(told), (total, measured.total(), view.readers, measured)
        self.seen["bytes"] += held.total()
        self.seen["shared bytes"] += sum(shared for _, shared, _ in told)

    def check_shared(self, view: SystemView) -> None:
        live = self.engine.engine._live
        operators = [
            (row_number, number, operator)
            for row_number, row in enumerate(live._job.stages)
            for number, operator in row[0]._operators.items()
        ]
        assert len({id(operator) for *_, operator in operators}) == len(operators)
        for one in view.listed:
            if one.bound is None or not any(one.stored.name in names for names in view.readers.values()):
                continue
            report = sharing_of(view, one.bound, True, one.stored.name)
            assert report.is_registered
            mine = [
                step for step in view.steps if one.stored.name in view.readers[step.id] and step.spec.answered is None
            ]
            assert len(mine) == len(report.shared) + len(report.equal) + len(report.near) + report.own
            # A step that others use is one step of the plan, with one operator in each shard.
            shared = Counter((step.spec.title, step.stage, view.readers[step.id]) for step in mine)
            found = Counter(
                (step.kind, step.stage, tuple(sorted((*step.others, one.stored.name)))) for step in report.shared
            )
            assert found == Counter({key: n for key, n in shared.items() if len(key[2]) > 1})
            saved = [
                view.state_of_steps.get(view.figures.run.keys[s.id], (0, 0))[1]
                for s in mine
                if len(view.readers[s.id]) > 1
            ]
            assert report.saved_bytes == sum(saved)
            self.seen["reports"] += 1
            self.seen["shared steps"] += len(report.shared)
            self.seen["near"] += len(report.near)


def observed(seed: int) -> Counter[str]:
    return random_life(seed, ObservedLives, EDITS).seen


@pytest.fixture(autouse=True)
def always_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StateGauge, "_SHARE", 0)


def test_bytes_of_all_queries_are_those_of_the_state_and_what_is_shared_is_one_object() -> None:
    seen: Counter[str] = Counter()
    for seed in range(CASES):
        seen += observed(seed)
    assert min(seen["bytes"], seen["shared bytes"], seen["shared steps"], seen["reports"]) > 0, seen


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(CASES, MANY_CASES))
def test_many_lives(seed: int) -> None:
    observed(seed)
