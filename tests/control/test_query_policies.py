"""Attributes of queries that steer a run: `weight` and `latency_target`."""

from __future__ import annotations

from pathlib import Path

import pytest
from control_kit import STREAM, SUM, Server

from penstock.control.life.reconcile import difference
from penstock.engines.in_process import _deciding
from penstock.engines.spark import SparkEngine
from penstock.runtime.spark.checkpoint.rate_control import RateControl
from penstock.runtime.spark.output.delivery import by_weight
from penstock.settings import Settings


def test_weights_and_targets_reach_the_run(tmp_path: Path) -> None:
    system = Server(tmp_path)
    heavy = SUM.replace("q AS", "q WITH (weight 2.5, latency_target '500 ms') AS")
    system.done(STREAM + heavy + SUM.replace("q AS", "r WITH (latency_target '2 seconds') AS"))
    system.done("ALTER QUERY r SET (weight 0)")
    applier = system.control._applier
    version = applier._next([], applier.current)
    places = {name: f"q{system.control.query(name)[1].place}" for name in "qr"}
    work = SparkEngine(tmp_path / "spark", lambda: pytest.fail("Spark is not needed"))._work(
        version, difference(version, {})
    )
    assert work.weights == {places["q"]: 2.5, places["r"]: 0.0} and work.latency_target == 0.5
    assert work.policies.latency_targets == {places["q"]: 0.5, places["r"]: 2.0}
    assert _deciding(version).policies.latency_targets == {places["q"][1:]: 0.5, places["r"][1:]: 2.0}
    system.done("ALTER QUERY q SET (latency_target 'none')")
    version = applier._next([], applier.current)
    work = SparkEngine(tmp_path / "spark", lambda: pytest.fail("Spark is not needed"))._work(
        version, difference(version, {})
    )
    assert work.latency_target == 2.0
    system.control.close()


def test_sinks_of_heavier_queries_are_written_first() -> None:
    assert by_weight(iter("abcd"), {"c": 3.0, "a": 0.0, "d": 1.0}) == ["c", "b", "d", "a"]


def test_the_tightest_target_counts() -> None:
    settings = Settings()
    assert RateControl.of(settings, 1, 0.0).target == settings["target_latency"] == 0.0
    assert RateControl.of(settings, 1, 0.5).target == 0.5
    assert RateControl.of(settings.with_value("target_latency", "200 ms"), 1, 0.5).target == 0.2
    assert RateControl.of(settings.with_value("target_latency", "2 s"), 1, 0.5).target == 0.5
