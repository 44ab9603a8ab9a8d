"""Failures of steps that end the queries of these steps alone.

A step that raises belongs to the queries that use it. They have no answer in the round and after it; the others are not
affected, since every step behind the failed one is used by the same queries or fewer of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

from penstock.errors import PenstockError
from penstock.physical.operators.joins.growth import TooManyPairs, limited_joins
from penstock.physical.plan.plan import Step


class StepFailures:
    """The queries that have failed in the rounds of an executor, each with its first error.

    Args:
        most: bytes that a step may emit to others in a round, which are in memory; None for any number.
        why: the reason.
    """

    def __init__(self, most: int | None = None, why: str = "result_limit") -> None:
        self.errors: dict[str, PenstockError] = {}
        self._most, self._why = most, why
        #: By step, what it has emitted to others.
        self._emitted: dict[int, int] = {}

    def count(self, step: Step, nbytes: int) -> None:
        """Count what a step emits to others, which is kept until they run. Its queries fail beyond the limit."""
        if self._most is None:
            return
        emitted = self._emitted[step.id] = self._emitted.get(step.id, 0) + nbytes
        if emitted > self._most:
            self.note(step, self._too_much(step, emitted))

    def limited(self, step: Step) -> AbstractContextManager[None]:
        """Limit what joins form while `step` works: what a step emits is counted when all of it is there."""
        if self._most is None:
            return nullcontext()
        return limited_joins(max(0, self._most - self._emitted.get(step.id, 0)))

    def _too_much(self, step: Step, emitted: int) -> PenstockError:
        message = f"an operator, {step.spec.title}, emits {emitted:,} bytes in a round, and may {self._most:,}"
        hint = "a narrower join, a shorter window or a longer SLIDE"
        if self._why == "result_limit":
            hint += "; or SET result_limit"
        return PenstockError("P0634", f"{message} ({self._why})", hint=hint)

    def note(self, step: Step, error: Exception) -> None:
        """Record that `step` raised `error`."""
        if isinstance(error, TooManyPairs) and self._most is not None:
            error = self._too_much(step, max(self._most, self._emitted.get(step.id, 0)) + error.excess)
        for query in step.queries:
            self.errors.setdefault(query, _as_error(query, step, error))

    def stopped(self, step: Step) -> bool:
        """Return whether all queries of `step` have failed, so that it need not run."""
        return bool(self.errors) and step.queries <= self.errors.keys()


def note_failure(step: Step, error: Exception, failures: StepFailures | None) -> None:
    """Record the error of a step in `failures`; raise it where that is None."""
    if failures is not None:
        failures.note(step, error)
    elif isinstance(error, PenstockError):
        raise _step_error(step, error) from error.cause
    else:
        raise error


def _step_error(step: Step, error: PenstockError) -> PenstockError:
    """Add to an error of user-defined code, or of an invalid value, which queries it stops."""
    queries = ", ".join(sorted(filter(None, step.queries)))
    if error.code not in ("P0612", "P0621") or not queries:
        return error
    return _of_queries(queries, error)


def _as_error(query: str, step: Step, error: Exception) -> PenstockError:
    """Return an error of the project that names the query which it stops."""
    if isinstance(error, MemoryError):
        message = f"query {query}: an operator, {step.spec.title}, needs more memory than its process has"
        return PenstockError("P0601", message, hint="a shorter window or a narrower join", cause=error)
    if not isinstance(error, PenstockError):
        return PenstockError("P0601", f"query {query}: {type(error).__name__}: {error}", cause=error)
    return _of_queries(query, error)


def _of_queries(queries: str, error: PenstockError) -> PenstockError:
    first, *rest = error.message.split("\n")
    message = "\n".join([f"query {queries}: {first}", *rest])
    return PenstockError(error.code, message, hint=error.hint, cause=error.cause)


def with_names(error: PenstockError, names: Mapping[str, str]) -> PenstockError:
    """Return an error whose message has other names of queries.

    Args:
        names: by the name that stands there, such as the one that their users know.
    """
    message = re.sub(r"\bquery (\w+)(?=[ :])", lambda one: f"query {names.get(one[1], one[1])}", error.message)
    return PenstockError(error.code, message, error.position, error.hint, error.cause)
