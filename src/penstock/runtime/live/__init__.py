"""The live engine: queries that are registered and dropped while streams run, in this process and without Spark."""

from penstock.runtime.live.engine import LiveEngine
from penstock.runtime.live.snapshot import LiveSnapshot

__all__ = ["LiveEngine", "LiveSnapshot"]
