"""Definitions of users' functions and aggregates made from Python: by decorators, and by CREATE FUNCTION."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.expressions.aggregates import is_aggregate
from penstock.expressions.library import TABLE
from penstock.expressions.user import NEEDED, UserAggregate, UserDefined, UserFunction
from penstock.types import parse_type

#: Definitions that decorators registered in this process, by name in lower case.
REGISTERED: dict[str, UserDefined] = {}
U = TypeVar("U", bound=UserDefined)


def make(
    kind: type[U],
    body: object,
    returns: str | pa.DataType | None,
    name: str | None = None,
    parameters: Sequence[str | pa.DataType] | None = None,
    volatile: bool = False,
    reference: str | None = None,
) -> U:
    """Return the definition of `body`.

    Raises:
        PenstockError: P0206, the name is that of a built-in; P0207, P0221.
    """
    called: str = name or getattr(body, "__name__", None) or type(body).__name__
    if called.upper() in TABLE or is_aggregate(called):
        raise PenstockError("P0206", f"{called} is a function of the language", hint="choose another name")
    if isinstance(body, UserDefined):
        if not isinstance(body, kind):
            raise PenstockError("P0221", f"{called} is declared as {body.kind} in Python, not as {kind.kind}")
        returns = body.returns if returns is None else returns
        parameters = body.parameters if parameters is None else parameters
        volatile = volatile or body.volatile
        body = body.body
    if returns is None:
        raise PenstockError("P0221", f"{called} has no return type", hint="add RETURNS type")
    if kind is UserAggregate:
        body = _methods(called, body)
    elif not callable(body):
        raise PenstockError("P0221", f"{called} cannot be called: it is {type(body).__name__}")
    types = None if parameters is None else tuple(map(_type, parameters))
    return kind(called, _type(returns), body, types, volatile, reference)


def return_type(returns: object, decorator: str) -> None:
    """Refuse what is no type, as by a decorator that is written without brackets. Raises PenstockError P0221."""
    if not isinstance(returns, str | pa.DataType):
        hint = f"the type stands in brackets behind the decorator: @{decorator}('INT')"
        raise PenstockError("P0221", f"{decorator}: the return type is a {type(returns).__name__}", hint=hint)


def function(
    returns: str | pa.DataType,
    parameters: Sequence[str | pa.DataType] | None = None,
    name: str | None = None,
    volatile: bool = False,
) -> Callable[[Callable[..., object]], UserFunction]:
    """Register a Python function of Arrow arrays as a function of every script (a decorator).

    Args:
        returns: SQL type of its values.
        parameters: SQL types that arguments are cast to.
        name: in scripts; by default the function's own.
        volatile: equal arguments may give different values.
    """
    return_type(returns, "function")

    def register(body: Callable[..., object]) -> UserFunction:
        made: UserFunction = make(UserFunction, body, returns, name, parameters, volatile)
        REGISTERED[made.key] = made
        return made

    return register


def aggregate(
    returns: str | pa.DataType, parameters: Sequence[str | pa.DataType] | None = None, name: str | None = None
) -> Callable[[object], UserAggregate]:
    """Register a class with init, update, final, and optionally merge and expire, as an aggregate of every script (a
    decorator).
    """
    return_type(returns, "aggregate")

    def register(body: Any) -> UserAggregate:
        made: UserAggregate = make(UserAggregate, body, returns, name, parameters)
        REGISTERED[made.key] = made
        return made

    return register


def _type(given: str | pa.DataType) -> pa.DataType:
    return parse_type(given) if isinstance(given, str) else given


def _methods(name: str, body: Any) -> Any:
    """Return an object with the methods of an aggregate."""
    if isinstance(body, type):
        try:
            body = body()
        except Exception as error:
            raise PenstockError(
                "P0221", f"{name} cannot be made: {type(error).__name__}: {error}", cause=error
            ) from error
    lacking = [m for m in NEEDED if not callable(getattr(body, m, None))]
    if lacking:
        raise PenstockError(
            "P0221",
            f"the aggregate {name} lacks {', '.join(lacking)}",
            hint="an aggregate has init, update, final, and optionally merge and expire",
        )
    return body
