"""Folders that this process is using, which are not removed with the files of older epochs."""

from __future__ import annotations

_HELD: set[str] = set()


def hold(folder: str) -> None:
    """Note that a folder is in use."""
    _HELD.add(folder)


def let_go(folder: str) -> None:
    """Note that it is no longer."""
    _HELD.discard(folder)


def is_held(folder: str) -> bool:
    """Return whether a folder is in use."""
    return folder in _HELD
