"""The plan of a query's body on its own line of instants, run by the very executor that runs the job (LANGUAGE 6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.physical.elements import Elements
from penstock.physical.executor import IngestExecutor, Port, Result, StageExecutor
from penstock.physical.operators import Tables
from penstock.physical.plan import Plan, ScanSpec, Step
from penstock.physical.synopses.contract import Synopsis


class InnerStage(StageExecutor):
    """A stage of the inner plan. reached: the last instant so far, 0 for none."""

    reached = 0

    def heartbeats(self) -> dict[str, int]:
        return {"": self.reached}

    def _start(self, step: Step) -> int | None:
        return 1 if self.reached else None


class InnerPlan:
    """The body of a query on its line, in one piece."""

    def __init__(self, plan: Plan, tables: Tables) -> None:
        sources = {step.spec.source.name for step in plan.steps if isinstance(step.spec, ScanSpec)}
        self._plan = plan
        self._ingests = {name: IngestExecutor(plan, name, tables) for name in sorted(sources)}
        self.stages = [InnerStage(plan, stage, 0, 1, tables) for stage in range(1, plan.stages + 1)]

    def run(self, given: Mapping[str, Elements], reached: int) -> list[Elements]:
        """What is answered at instants up to `reached`; given: by source."""
        mail: dict[Port, list[Elements]] = {}
        for name, elements in given.items():
            if name in self._ingests and len(elements):
                _post(self._ingests[name].run(elements), mail)
        answers: list[Elements] = []
        for stage in self.stages:
            stage.reached = reached
            mine = {port: mail.pop(port) for port in list(mail) if self._plan.steps[port[0]].stage == stage.stage}
            result = stage.run(mine, {})
            _post(result, mail)
            answers += result.answers.get("", [])
        return answers

    def synopses(self) -> dict[str, Synopsis]:
        return {f"inner.{name}": s for stage in self.stages for name, s in stage.synopses().items()}

    def marks(self) -> list[Any]:
        return [[stage.reached, stage.marks()] for stage in self.stages]

    def restore_marks(self, marks: list[Any]) -> None:
        for stage, (reached, found) in zip(self.stages, marks, strict=True):
            stage.reached = reached
            stage.restore_marks(found)


def _post(result: Result, mail: dict[Port, list[Elements]]) -> None:
    for port, batches in result.onward.items():
        mail.setdefault(port, []).extend(batches)
