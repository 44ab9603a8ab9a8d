"""Calls of user-defined code: conversion of values, the report of its failures, and how long it may take.

Contract: every failure of the code (an exception, a wrong type or length) is a PenstockError P0621 that shows the
function, up to three of the rows on which it fails, and the user's own part of the traceback as text. It has no
position, because it occurs while a query runs.

A query of a server shares its rounds with others, which wait while a function works. So a call may have a limit of time
(`limited_calls`): in the main thread of a process, where workers run, it is ended by a signal; elsewhere it fails when
it has returned. And a call during which processes have ended twice is not tried again: where a task is repeated, it
would end them all.
"""

from __future__ import annotations

import inspect
import signal
import threading
import time
import traceback
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.errors import PenstockError, counted
from penstock.expressions.user import UserAggregate, UserDefined, UserFunction
from penstock.loading import modules
from penstock.types import type_name

_SHOWN = 3
#: Seconds by which the limit of a call is longer for each of its rows.
_EACH_ROW = 0.01

#: How often a process may end during a call before the call is not tried again.
_DEATHS = 2

#: Seconds that a call may take, and somewhat more for each row; None for any time. And where it is noted.
_LIMIT: ContextVar[float | None] = ContextVar("penstock_user_calls", default=None)
_MARK: ContextVar[Path | None] = ContextVar("penstock_user_call", default=None)


class _NotAgain(Exception):
    """User code takes longer than it may, or ends its process."""


@contextmanager
def limited_calls(seconds: float | None, mark: Path | None = None) -> Iterator[None]:
    """Limit each call of user-defined code in this context.

    Args:
        seconds: that it takes at most. None, 0: any time.
        mark: what the names of files begin with that are there while code runs. Where another process takes the place
            of one that has ended, it finds there during which call this was.
    """
    tokens = _LIMIT.set(seconds or None), _MARK.set(mark)
    try:
        yield
    finally:
        _LIMIT.reset(tokens[0])
        _MARK.reset(tokens[1])


@contextmanager
def _marked(user: UserDefined) -> Iterator[None]:
    """Note that code of `user` runs here. Raises _NotAgain where processes have ended meanwhile."""
    place = _MARK.get()
    if place is None:
        yield
        return
    # Others are called before it, and come to an end.
    mark = place.with_name(f"{place.name}-{zlib.crc32(user.key.encode()):08x}")
    deaths = mark.stat().st_size if mark.exists() else 0
    if deaths >= _DEATHS:
        raise _NotAgain("the process in which it ran has ended each time")
    with mark.open("ab") as file:
        file.write(b".")
    try:
        yield
    finally:
        mark.unlink(missing_ok=True)


@contextmanager
def _limited(user: UserDefined, rows: int) -> Iterator[None]:
    """Limit what is done here: code of `user` over so many rows. Raises _NotAgain."""
    with modules.beside(user.body), _marked(user), _within_time(rows):
        yield


@contextmanager
def _within_time(rows: int) -> Iterator[None]:
    limit = _LIMIT.get()
    if limit is None:
        yield
        return
    allowed = limit + _EACH_ROW * rows
    error = _NotAgain(f"it takes longer than {allowed:.3g} seconds over {counted(rows, 'row')} (function_timeout)")

    def end(number: int, frame: object) -> None:
        raise error

    began = time.monotonic()
    if threading.current_thread() is threading.main_thread():
        before = signal.signal(signal.SIGALRM, end)
        signal.setitimer(signal.ITIMER_REAL, allowed)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
    else:
        yield
    if time.monotonic() - began > allowed:
        raise error


class _Misfit(Exception):
    """User code returned a value that does not fit; the text is the reason."""


def call_function(user: UserFunction, arguments: Sequence[pa.Array], rows: int) -> pa.Array:
    """Return the values of `user` over `rows` rows.

    Raises:
        PenstockError: P0621.
    """
    if not rows:
        return pa.array([], user.returns)
    try:
        return _call(user, arguments, rows)
    except (_NotAgain, MemoryError) as error:
        # It would be so again.
        raise _failed(user, "", error, (), None, 0) from error
    except Exception as error:

        def fails(start: int, stop: int) -> bool:
            try:
                _call(user, [a.slice(start, stop - start) for a in arguments], stop - start)
            except Exception:
                return True
            return False

        raise _failed(user, "", error, arguments, fails, rows) from error


def _call(user: UserFunction, arguments: Sequence[pa.Array], rows: int) -> pa.Array:
    with _limited(user, rows):
        given = user.body(*arguments, rows=rows) if _wants_rows(user) else user.body(*arguments)
    if isinstance(given, pa.ChunkedArray):
        given = given.combine_chunks()
    if isinstance(given, (str, bytes, pa.Scalar)) or not hasattr(given, "__len__"):
        raise _Misfit(f"it returned one {type(given).__name__}, not an array of {counted(rows, 'value')}")
    if len(given) != rows:
        raise _Misfit(f"it returned {counted(len(given), 'value')} for {counted(rows, 'row')}")
    return _typed(given, user)


def _typed(given: Any, user: UserDefined) -> pa.Array:
    kind = given.type if isinstance(given, pa.Array) else None
    if kind == user.returns:
        return given
    try:
        made = given.cast(user.returns) if kind is not None else pa.array(given, user.returns)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        given_name = kind or f"a {type(given).__name__}"
        raise _Misfit(f"it returned {given_name}, which is not {type_name(user.returns)}: {error}") from None
    return made.combine_chunks() if isinstance(made, pa.ChunkedArray) else made


@lru_cache(maxsize=1024)
def _keywords(code: Callable[..., object]) -> bool:
    try:
        return "rows" in inspect.signature(code).parameters
    except (TypeError, ValueError):
        return False


def _wants_rows(user: UserFunction) -> bool:
    try:
        return _keywords(user.body)
    except TypeError:  # not hashable
        return "rows" in inspect.signature(user.body).parameters


# -- aggregates ----------------------------------------------------------------------------------------------------


def start(user: UserAggregate) -> object:
    """Return a fresh state."""
    return _method(user, "init", ())


def update(user: UserAggregate, state: object, values: Sequence[pa.Array]) -> object:
    """Return `state` after adding `values` (one array per argument)."""
    return _method(user, "update", (state,), values)


def expire(user: UserAggregate, state: object, values: Sequence[pa.Array]) -> object:
    """Return `state` after removing `values`."""
    return _method(user, "expire", (state,), values)


def merge(user: UserAggregate, state: object, other: object) -> object:
    return _method(user, "merge", (state, other))


def final(user: UserAggregate, state: object) -> object:
    """Return the value of `state`, which must fit into an array of the declared type."""
    value = _method(user, "final", (state,))
    try:
        _typed([value], user)
    except _Misfit as misfit:
        raise _failed(user, ".final", misfit, (), None, 0) from None
    return value


def final_values(user: UserAggregate, values: Sequence[object]) -> pa.Array:
    """Return the values of `final` as one array."""
    return _typed(list(values), user)


def _method(user: UserAggregate, name: str, states: tuple[object, ...], values: Sequence[pa.Array] = ()) -> object:
    method = getattr(user.body, name)
    try:
        with _limited(user, len(values[0]) if values else 0):
            return method(*states, *values)
    except (_NotAgain, MemoryError) as error:
        raise _failed(user, f".{name}", error, (), None, 0) from error
    except Exception as error:

        def fails(start_: int, stop: int) -> bool:
            try:
                with modules.beside(user.body):
                    method(user.body.init(), *(v.slice(start_, stop - start_) for v in values))
            except Exception:
                return True
            return False

        rows = len(values[0]) if values else 0
        raise _failed(user, f".{name}", error, values, fails, rows) from error


# -- errors of calls ----------------------------------------------------------------------------------------------


def _failed(
    user: UserDefined,
    method: str,
    error: BaseException,
    arguments: Sequence[pa.Array],
    fails: Callable[[int, int], bool] | None,
    rows: int,
) -> PenstockError:
    reason = str(error) if isinstance(error, (_Misfit, _NotAgain)) else f"{type(error).__name__}: {error}"
    lines = [f"the user-defined {user.kind.lower()} {user.name}{method} failed: {reason}"]
    if arguments and rows and fails is not None:
        found = _offending(fails, rows)
        shown = found or list(range(min(rows, _SHOWN)))
        lines.append("  it fails on:" if found else "  no single row makes it fail; its first rows:")
        lines += [f"    ({', '.join(repr(_python(a[i])) for a in arguments)})" for i in shown]
    lines += _traceback(error)
    slow = isinstance(error, _NotAgain) and "function_timeout" in reason
    hint = "a faster function, or SET function_timeout" if slow else None
    return PenstockError("P0621", "\n".join(lines), hint=hint)


def _offending(fails: Callable[[int, int], bool], rows: int) -> list[int]:
    """Return up to three rows on which the code fails alone, found by bisection."""
    found: list[int] = []
    waiting = [(0, rows)]
    while waiting and len(found) < _SHOWN:
        start_, stop = waiting.pop()
        if not fails(start_, stop):
            continue
        if stop - start_ == 1:
            found.append(start_)
            continue
        middle = (start_ + stop) // 2
        waiting += [(middle, stop), (start_, middle)]
    return found


def _python(value: pa.Scalar) -> object:
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        return str(value)


def _traceback(error: BaseException) -> list[str]:
    """Return the user's part of the traceback, as lines."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    if frames is None:
        return []
    text = "".join(traceback.format_exception(type(error), error.with_traceback(frames), frames, chain=False))
    return ["  " + line for line in text.rstrip().splitlines()]
