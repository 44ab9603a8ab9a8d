"""The table of scalar functions, one entry each.

To add a function, write its kernel in the file of its topic under `library/` and one `Function(...)` entry in that
file's `FUNCTIONS`; typing, evaluation, the check of the number of arguments, its help and docs/functions.md follow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.expressions.coercion import implicit, misfit
from penstock.expressions.nodes import Expression
from penstock.expressions.values.datum import Kernel

#: (name or operator for messages, arguments) -> (arguments with implicit casts, result type). Raises PenstockError
#: P0203.
Rule: TypeAlias = Callable[[str, Sequence[Expression]], tuple[tuple[Expression, ...], pa.DataType]]


@dataclass(frozen=True)
class Function:
    """A scalar function or operator.

    `signature`: its parameters for people, which also define the argument counts: comma-separated, optional ones in
    brackets, `...` after one that may repeat. `aliases`: other SQL names of the same function. `operator`: its notation
    if it is not a call by name. `volatile`: its value is not determined by its arguments. `never_null`: it has a value
    for every row. `compares`: it treats equal values as the same, such as -0.0 and 0.0. `checks`: its rule checks the
    constants after the first argument, which are therefore computed before. `rises_with`: the position of the argument
    with which it rises while the others stay (`evaluation/rising.py`); None where there is none. `rises_if`: whether it
    does for these arguments; None where it always does.
    """

    name: str
    signature: str
    rule: Rule
    kernel: Kernel
    help: str
    aliases: tuple[str, ...] = ()
    operator: str | None = None
    volatile: bool = False
    never_null: bool = False
    compares: bool = False
    checks: bool = False
    rises_with: int | None = None
    rises_if: Callable[[Sequence[Expression]], bool] | None = None

    @cached_property
    def counts(self) -> tuple[int, int | None]:
        """Return the smallest and the largest number of arguments; None for any number."""
        least, most = (_count(re.sub(cut, " ", self.signature)) for cut in (r"\[[^]]*\]", r"[][]"))
        return least, None if "..." in self.signature else most

    @cached_property
    def shown(self) -> str:
        """Return the name in messages: the sign or word of an operator, as in `left + right`."""
        sign = None if self.operator is None else _SIGN.search(self.operator)
        return sign[0] if sign else self.name

    def check_count(self, given: int) -> None:
        """Check the number of arguments.

        Raises:
            PenstockError: P0204, the function does not accept that many.
        """
        least, most = self.counts
        if given < least or (most is not None and given > most):
            if most is None:
                takes = f"at least {least} argument" + "s" * (least != 1)
            elif least == most:
                takes = f"{least} argument" + "s" * (least != 1)
            else:
                takes = " or ".join(str(n) for n in range(least, most + 1)) + " arguments"
            raise PenstockError(
                "P0204", f"{self.name} takes {takes}, not {given}", hint=f"{self.name}({self.signature})"
            )


#: The sign or the first keyword in the notation of an operator; operands are in lower case.
_SIGN = re.compile(r"[A-Z_]+|[^\w\s()\[\].,]+")


def _count(parameters: str) -> int:
    return len([p for p in parameters.split(",") if p.strip(" .")])


def takes(result: pa.DataType, *parameters: pa.DataType) -> Rule:
    """Return the rule of a function with fixed parameter types; the last one repeats where the signature has `...`."""

    def rule(name: str, arguments: Sequence[Expression]) -> tuple[tuple[Expression, ...], pa.DataType]:
        padded = parameters + parameters[-1:] * max(0, len(arguments) - len(parameters))
        return tuple(implicit(a, t, name) for a, t in zip(arguments, padded, strict=False)), result

    return rule


def needs(name: str, arguments: Sequence[Expression], fits: Callable[[pa.DataType], bool]) -> None:
    """Check the types of arguments.

    Raises:
        PenstockError: P0203, the type of an argument does not satisfy `fits` and is not NULL.
    """
    if not all(fits(a.type) or pa.types.is_null(a.type) for a in arguments):
        raise misfit(name, [a.type for a in arguments])
