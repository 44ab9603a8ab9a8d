"""Limits of the doors, from the settings of the server's start."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.settings import Settings


@dataclass(frozen=True)
class DoorLimits:
    """Limits. bodies: of posted rows, in bytes; seconds: of a one-time query; 0: none."""

    statement_bytes: int
    body_bytes: int
    connections: int
    subscriptions: int
    seconds: float
    rows: int

    @staticmethod
    def of(settings: Settings) -> DoorLimits:
        return DoorLimits(
            settings.get_int("max_statement_bytes"), settings.get_int("max_body_bytes"),
            settings.get_int("max_connections"), settings.get_int("max_subscriptions"),
            float(settings["statement_timeout"]), settings.get_int("max_result_rows"),
        )  # fmt: skip
