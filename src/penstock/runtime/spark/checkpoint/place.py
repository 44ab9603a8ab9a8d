"""Where a checkpoint may lie."""

from __future__ import annotations

from pathlib import Path

from penstock.errors import PenstockError


def check_place(checkpoint: Path) -> None:
    """Raises PenstockError P0608 for a checkpoint that is a file, or is to lie below one."""
    for place in (checkpoint, *checkpoint.parents):
        # A link that leads nowhere is there and is no folder.
        if place.is_symlink() or place.exists():
            if place.is_dir():
                return
            consequence = "" if place == checkpoint else f", so {checkpoint} cannot be a folder"
            description = "a file" if place.is_file() else "no folder"
            raise PenstockError("P0608", f"{place} is {description}{consequence}", hint="--checkpoint names a folder")
