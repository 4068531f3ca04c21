"""What is known now as Prometheus text, on a port of this machine only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pcitrace.errors import PciTraceError

if TYPE_CHECKING:
    from pcitrace.live.watcher import Status

__all__ = ["Metrics"]

LOOPBACK = "127.0.0.1"


class Metrics:
    """A web server on loopback that says what is known now.

    Parameters
    ----------
    port : int
        0 for any that is free.

    Raises
    ------
    PciTraceError
        The port is taken, or ``prometheus_client`` is not installed.
    """

    def __init__(self, port: int) -> None:
        try:
            from prometheus_client import CollectorRegistry, start_http_server
        except ImportError as error:
            raise PciTraceError(f"--metrics needs prometheus_client: pip install 'pcitrace[live]' ({error})") from error
        self._status: Status | None = None
        registry = CollectorRegistry()
        registry.register(self)
        try:
            self._server, self._thread = start_http_server(port, LOOPBACK, registry)
        except (OSError, OverflowError) as error:
            said = getattr(error, "strerror", None) or error
            raise PciTraceError(f"--metrics {port}: {said}; choose another port, or 0 for any") from error

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_port)

    def show(self, status: Status) -> None:
        """Say this from now on."""
        self._status = status

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def collect(self) -> Iterator[Any]:
        """Yield the families of numbers, as prometheus_client asks for them."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        status = self._status
        if status is None:
            return
        buses = status.buses.items()
        for name, help_, key in (
            ("pcitrace_occupancy", "Share of clocks in which the bus is busy, last seconds.", "occupancy"),
            ("pcitrace_data_occupancy", "Share of clocks in which data move, last seconds.", "data_occupancy"),
            ("pcitrace_throughput_mb_per_second", "1e6 bytes a second, last seconds.", "throughput_mb_s"),
        ):
            gauge = GaugeMetricFamily(name, help_, labels=["bus"])
            for bus, one in buses:
                if one[key] is not None:
                    gauge.add_metric([bus], one[key])
            yield gauge
        for name, help_, counts in (
            ("pcitrace_transactions", "Transactions by command.", _each(buses, "total", "commands")),
            ("pcitrace_problems", "Problems by kind.", _each(buses, "problems")),
            ("pcitrace_rule_violations", "Broken rules.", _each(buses, "violations")),
        ):
            counter = CounterMetricFamily(name, help_, labels=["bus", "kind"])
            for bus, kind, count in counts:
                counter.add_metric([bus, kind], count)
            yield counter
        skipped = CounterMetricFamily("pcitrace_skipped_samples", "Samples that were left out.")
        skipped.add_metric([], status.skipped_samples)
        yield skipped
        latency = GaugeMetricFamily("pcitrace_latency_seconds", "From a sample's arrival to its being counted.")
        latency.add_metric([], status.latency_s)
        yield latency


def _each(buses: Iterable[tuple[str, dict[str, Any]]], *keys: str) -> list[tuple[str, str, int]]:
    found = []
    for bus, one in buses:
        counts: Any = one
        for key in keys:
            counts = counts[key]
        found += [(bus, kind, count) for kind, count in counts.items()]
    return found
