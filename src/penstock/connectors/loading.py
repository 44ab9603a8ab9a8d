"""Load a connector's class by name."""

from __future__ import annotations

import importlib
from typing import Any


def load(class_path: str) -> Any:
    """Return the class at `module:Class` below this package."""
    module, _, name = class_path.partition(":")
    return getattr(importlib.import_module(f"{__package__}.{module}"), name)
