"""Work over deep trees, on a stack that holds them however much of its own stack the caller has used.

Scripts, plans and expressions are trees, and what reads them is recursive. How deep they may be is limited
(`language/limits.py`), but a caller who is himself deep in calls has less stack left than such a tree needs.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import sys
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from penstock.errors import PenstockError

P = ParamSpec("P")
T = TypeVar("T")

#: Calls within each other on a deep stack, and its bytes: a call that goes through the interpreter's C code takes
#: about 1 KB, so that the limit is reached long before the end of the stack.
CALLS, STACK_BYTES = 60_000, 256 * 2**20

_local = threading.local()
_lock = threading.Lock()
_users = 0
_usual = sys.getrecursionlimit()


def deep(function: Callable[P, T]) -> Callable[P, T]:
    """`function`, done again on a deep stack where the caller's own does not hold it. It must change nothing but
    what it returns. Raises PenstockError P0105 where not even the deep stack holds it."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        if getattr(_local, "deep", False):
            return function(*args, **kwargs)
        if _has_room():
            try:
                return function(*args, **kwargs)
            except Exception as error:
                if not _of_recursion(error):
                    raise
        return on_deep_stack(lambda: function(*args, **kwargs))

    return run


def on_deep_stack(work: Callable[[], T]) -> T:
    """What `work` returns, done on a deep stack. Raises PenstockError P0105 where not even that one holds it."""
    if getattr(_local, "deep", False):
        return work()
    results: list[T] = []
    errors: list[BaseException] = []

    def body() -> None:
        _local.deep = True
        try:
            results.append(work())
        except BaseException as error:  # the caller raises it
            errors.append(error)

    _raise_limit()
    try:
        thread = _started(functools.partial(contextvars.copy_context().run, body))
        thread.join()
    finally:
        _restore_limit()
    if errors and _of_recursion(errors[0]):
        raise PenstockError("P0105", "this is nested too deeply", hint="divide it into parts") from None
    if errors:
        raise errors[0]
    return results[0]


def _has_room() -> bool:
    """Whether the caller has most of an ordinary stack left. Some libraries make another error of a RecursionError, or
    take it for one of the text they read: so work is not begun close to the end."""
    try:
        sys._getframe(sys.getrecursionlimit() * 2 // 5)
    except ValueError:
        return True
    return False


def _of_recursion(error: BaseException) -> bool:
    """Whether a RecursionError is `error`, or what it was raised for."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        if isinstance(cause, RecursionError):
            return True
        seen.add(id(cause))
        cause = cause.__cause__ or cause.__context__
    return False


def _started(body: Callable[[], None]) -> threading.Thread:
    """A thread with a deep stack. A daemon: a caller who is interrupted does not wait for it."""
    with _lock:
        before = threading.stack_size(STACK_BYTES)
        try:
            thread = threading.Thread(target=body, name="penstock-deep", daemon=True)
            thread.start()
        finally:
            threading.stack_size(before)
    return thread


def _raise_limit() -> None:
    """The limit is one for all threads: it is raised while any deep stack is in use."""
    global _users, _usual
    with _lock:
        if _users == 0:
            _usual = sys.getrecursionlimit()
            sys.setrecursionlimit(max(_usual, CALLS))
        _users += 1


def _restore_limit() -> None:
    global _users
    with _lock:
        _users -= 1
        if _users == 0:
            with contextlib.suppress(RecursionError):  # another thread uses more by now: then the limit stays
                sys.setrecursionlimit(_usual)
