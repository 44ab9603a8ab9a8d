"""The metrics of a run for Prometheus: an HTTP endpoint `/metrics`, on loopback unless configured otherwise.

Figures are collected at each request; a run without requests pays nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from penstock.errors import PenstockError
from penstock.figures import SERIES
from penstock.figures.figure import FigureKind
from penstock.runtime.monitoring.metrics import RunMetrics, samples

LOOPBACK = "127.0.0.1"


class RunCollector(Collector):
    """Collector of a run's metrics. metrics: returns the present figures."""

    def __init__(self, metrics: Callable[[], RunMetrics]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        run = self._metrics()
        for figure in SERIES:
            family = CounterMetricFamily if figure.kind is FigureKind.COUNTER else GaugeMetricFamily
            metric_family = family(figure.series, figure.sentence, labels=figure.labels)
            for labels, value in samples(figure, run):
                metric_family.add_metric(labels, value)
            yield metric_family


def metrics_text(metrics: Callable[[], RunMetrics]) -> bytes:
    """Return metrics in the text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(RunCollector(metrics))
    return generate_latest(registry)


class Endpoint:
    """A running endpoint. Raises PenstockError P0631 when the port cannot be opened."""

    def __init__(self, metrics: Callable[[], RunMetrics], port: int, address: str = LOOPBACK) -> None:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(RunCollector(metrics))
        try:
            self._server, self._thread = start_http_server(port, address, registry)
        except OSError as error:
            raise PenstockError(
                "P0631",
                f"metrics cannot be served on {address}:{port}: {error.strerror}",
                hint="choose another --metrics-port",
                cause=error,
            ) from error
        self.port = int(self._server.server_port)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
