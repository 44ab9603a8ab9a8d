"""The deciders that every run has."""

from __future__ import annotations

from penstock.runtime.decisions.deciders import DeciderMaker
from penstock.runtime.decisions.granted_units import GrantedUnits
from penstock.runtime.decisions.keep_rates import KeepRates
from penstock.runtime.decisions.state_budgets import StateBudgets

#: In their order: each sees what those before it have decided.
REGISTRY: tuple[DeciderMaker, ...] = (
    KeepRates.of,
    StateBudgets.of,
    GrantedUnits.of,
)
