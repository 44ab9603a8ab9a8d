"""The names of what operators over periods count: figures of the steps, which metrics of a query sum up."""

from __future__ import annotations

#: Rows without a period, or without a gap behind them; rows whose period was over when they came; sessions, and
#: stretches that CLOSED waits for, which have not ended.
WITHOUT_PERIOD, ENDED_ON_ARRIVAL, OPEN_PERIODS = "without period", "ended on arrival", "open periods"
