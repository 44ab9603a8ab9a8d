"""What an approximate aggregate promises: its algorithm and error, and bounds around the exact value."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.expressions.nodes import Expression

#: The confidence of bounds that give none.
CONFIDENCE = 0.95
#: What has bounds, as a hint.
BOUNDED = "bounds are of an approximate aggregate, as in LOWER_BOUND(APPROX_COUNT_DISTINCT(x), 0.95)"


@dataclass(frozen=True)
class Bounds:
    """Expressions that enclose the exact value. They may contain aggregate calls of the same group, whose state is
    shared with equal calls."""

    lower: Expression
    upper: Expression


@dataclass(frozen=True)
class Accuracy:
    """What is known of the error before the run.

    Args:
        algorithm: with its parameters.
        error: its size, in words.
        certain: whether the error is never larger.
        width: half of what lies between the bounds at `CONFIDENCE`, as a share of their middle; None where it is not
            the same for all values.
    """

    algorithm: str
    error: str
    certain: bool
    width: float | None = None

    @property
    def text(self) -> str:
        return f"{self.algorithm}, {self.error}, {'certain' if self.certain else 'probable'}"


def percent(share: float) -> str:
    """Return a share as text, such as `1.6 %`."""
    return f"{100 * share:.2g} %"
