"""Calls that fail inside histories: within joint calls, while their states are exchanged, and anywhere."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from penstock.physical.operators.base.contract import JointAdvance, Operator
from penstock.physical.operators.base.owned_rows import OwnedRows
from tests.physical.test_joint_turns import JOINT


@dataclass
class Faults:
    """What fails: calls within joint calls, the exchange of their states, and any call of a command or round, after
    which the process goes on from what it has saved. counts: what has failed; common: joint calls of several."""

    seed: int
    computed: float = 0.0
    settled: float = 0.0
    anywhere: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)

    @contextmanager
    def installed(self) -> Iterator[None]:
        methods = ("take", "split", "in_order", "fingerprints", "marked")
        owned = {name: OwnedRows.__dict__[name] for name in methods}
        joint = {kind: kind.__dict__["advance_jointly"] for kind in JOINT}
        for name, before in owned.items():
            setattr(OwnedRows, name, self._failing(getattr(OwnedRows, name), before))
        for kind in JOINT:
            kind.advance_jointly = staticmethod(self._advancing(kind.advance_jointly))  # type: ignore[method-assign]
        try:
            yield
        finally:
            for name, before in owned.items():
                setattr(OwnedRows, name, before)
            for kind in JOINT:
                kind.advance_jointly = joint[kind]  # type: ignore[method-assign]

    def _failing(self, call: Callable[..., Any], before: object) -> Any:
        def fails(*given: Any) -> Any:
            if self.computed and self.draw.random() < self.computed:
                self.counts["computed"] += 1
                raise MemoryError("no memory")
            return call(*given)

        return staticmethod(fails) if isinstance(before, (staticmethod, classmethod)) else fails

    def _advancing(self, before: Callable[..., JointAdvance]) -> Callable[..., JointAdvance]:
        def advance(operators: Sequence[Operator], moments: Any) -> JointAdvance:
            advanced = before(operators, moments)
            self.counts["common"] += 1
            if self.settled and self.draw.random() < self.settled:
                self.counts["settled"] += 1
                return JointAdvance(advanced.emitted, self._lose)
            return advanced

        return advance

    @staticmethod
    def _lose() -> None:
        raise MemoryError("no memory")

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Let some call of Python inside the context fail, in one of some contexts."""
        if not self.anywhere or self.draw.random() >= self.anywhere:
            yield
            return
        left = int(10 ** self.draw.uniform(0, 4.5))

        def event(frame: FrameType, kind: str, arg: object) -> None:
            nonlocal left
            if kind == "call" and "penstock" in frame.f_code.co_filename:
                left -= 1
                if left == 0:
                    self.counts["anywhere"] += 1
                    raise MemoryError("interrupted")

        sys.setprofile(event)
        try:
            yield
        finally:
            sys.setprofile(None)
