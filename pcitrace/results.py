"""All numbers of a run in one place: what the report shows and ``pcitrace report --json`` prints."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any

import numpy as np
import pandas as pd
from uncertainties import UFloat

from pcitrace import analysis, timing
from pcitrace.errors import FitError
from pcitrace.estimate import SIGNIFICANT, Estimate, unknown
from pcitrace.frames import Frames
from pcitrace.freed import give_back
from pcitrace.latency import LatencyFit
from pcitrace.latency import read as read_latency
from pcitrace.model import LatencyModel, Term
from pcitrace.notebook import numbers_html
from pcitrace.records import records
from pcitrace.run import Run
from pcitrace.timing import Timing, usage
from pcitrace.timing.usage import Usage

__all__ = ["Results", "of_run", "t_nic_of_equation"]

UNLIKELY = 1e-3
"""Probability of a chi2 from which on a line is reported not to describe the latencies."""


@dataclass(frozen=True, repr=False)
class Results:
    """The numbers of a run.

    Attributes
    ----------
    run : Run
    frames : Frames
    timing : Timing
    usage : dict of str to Usage
        By host.
    latency : pandas.DataFrame or None
        The latency sweep of the run.
    fit : LatencyFit or None
        The line through it.
    model : LatencyModel or None
        Equation 2.1; None where a term is not known.
    t_sw : Estimate
    findings : tuple of str
        What a user must not overlook, of all steps.
    """

    run: Run
    frames: Frames
    timing: Timing
    usage: dict[str, Usage]
    latency: pd.DataFrame | None
    fit: LatencyFit | None
    model: LatencyModel | None
    t_sw: Estimate
    findings: tuple[str, ...]

    @property
    def constants(self) -> dict[str, Estimate]:
        """The terms of Equation 2.1 that the run tells."""
        return {
            "t_nic_us": self.timing.t_nic,
            "R_PCI_send_us_per_byte": self.timing.send.effective,
            "R_PCI_recv_us_per_byte": self.timing.receive.effective,
            "t_sw_us": self.t_sw,
        }

    def __repr__(self) -> str:
        known = sum(one.value is not None for one in self.constants.values())
        return (
            f"<Results of {self.run.path.name}: {known} of {len(self.constants)} constants known, "
            f"{len(self.frames)} frames, {len(self.findings)} findings>"
        )

    def _repr_html_(self) -> str:
        simulated = self.run.folder is not None and self.run.folder.simulated
        title = f"{self.run.path.name}{' (simulated)' if simulated else ''}: constants"
        findings = "".join(f"<li>{escape(finding)}</li>" for finding in self.findings)
        return numbers_html(title, self.constants.items()) + (f"<ul>{findings}</ul>" if findings else "")

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, as ``pcitrace report --json`` prints them; what is not known is None."""
        folder = self.run.folder
        return {
            "run": str(self.run.path),
            "origin": folder.run["origin"] if folder is not None else None,
            "simulated": folder.simulated if folder is not None else None,
            "captures": self._captures(),
            "constants": self._constants(),
            "timing": self._timing(),
            "buses": self.buses,
            "frames": self._frames(),
            "model": self._model(),
            "findings": list(self.findings),
        }

    @cached_property
    def buses(self) -> dict[str, dict[str, Any]]:
        """How much each bus is used, as plain values by host."""
        return {name: self._bus(name) for name in self.usage}

    def _captures(self) -> list[dict[str, Any]]:
        offsets = analysis.offsets(self.run)
        return [
            {"file": capture.path.name, "offset_us": offset.as_dict()}
            for capture, offset in zip(self.run.captures, offsets, strict=True)
        ]

    def _constants(self) -> dict[str, Any]:
        told = {name: one.as_dict() for name, one in self.constants.items()}
        passed = self.timing.transit
        columns = ["length_bytes", "value", "sigma"]
        told["t_nic_us"] |= {"line": passed.line.as_dict(), "at": records(passed.at[columns])}
        return told

    def _timing(self) -> dict[str, Any]:
        one = self.timing
        return {
            "t_nic_tx_us": one.t_nic_tx.as_dict(),
            "t_nic_rx_us": one.t_nic_rx.as_dict(),
            "t_nic_queued_us": one.t_nic_queued.as_dict(),
            "t_nic_us_per_byte": one.t_nic_line.slope.as_dict(),
            "gap_us_per_byte": one.gap.slope.as_dict(),
            "R_net_us_per_byte": one.r_net_us_per_byte,
            "forwarding": str(one.forwarding),
            "burst_rate_send_us_per_byte": one.send.burst.as_dict(),
            "burst_rate_recv_us_per_byte": one.receive.burst.as_dict(),
            "R_PCI_send_us_per_byte": {name: each.as_dict() for name, each in one.send.by_host.items()},
            "R_PCI_recv_us_per_byte": {name: each.as_dict() for name, each in one.receive.by_host.items()},
            "by_length": records(one.by_length),
            "csr_costs_us": records(one.csr_costs),
        }

    def _bus(self, name: str) -> dict[str, Any]:
        bus = self.run[name]
        [clocks] = records(bus.clocks())
        used = self.usage[name]
        return {
            "occupancy": clocks["occupancy"],
            "data_occupancy": clocks["data_occupancy"],
            "transactions": len(self.run.table(name)),
            "window_us": used.end_us - used.start_us,
            "start_us": used.start_us,
            "end_us": used.end_us,
            "clock_mhz": bus.clock_mhz,
            "send_periods": usage.whole_periods(used, self.frames, "send"),
            "receive_periods": usage.whole_periods(used, self.frames, "receive"),
            "groups": self._groups(name),
            "unknown_transactions": self.frames.hosts[name].unknown,
        }

    def _groups(self, name: str) -> dict[str, float | int]:
        """Return how many groups of sends a host handed to its card, and the means over those of several frames."""
        found = usage.groups(self.frames, name)
        several = found[found["frames"] > 1]
        told: dict[str, float | int] = {"groups": len(found), "of_several": len(several)}
        if len(several):
            told |= {what: float(several[what].mean()) for what in ("frames", "csr_us", "idle_us")}
        return told

    def _frames(self) -> dict[str, Any]:
        table, dropped = self.frames.table, self.frames.drop_log["reason"].value_counts()
        return {
            "rows": len(table),
            "matched": int((table["dma_end_us"].notna() & table["rx_dma_start_us"].notna()).sum()),
            "queued": int(table["queued"].sum()),
            "dropped": {str(reason): int(count) for reason, count in dropped.items()},
        }

    def _model(self) -> dict[str, Any]:
        slope = self.model.slope if self.model is not None else _slope_alone(self.timing)
        intercept = self.model.intercept if self.model is not None else None
        told = _line(intercept, slope)
        if self.model is not None:
            told["contributions"] = records(self.model.contributions(self.fit).reset_index())
            told["covariance"] = {str(name): row.to_dict() for name, row in self.model.covariance.iterrows()}
        if self.fit is not None:
            told["measured"] = _line(self.fit.intercept, self.fit.slope) | {
                "chi2": self.fit.chi2,
                "ndof": self.fit.ndof,
                "p_value": self.fit.p_value,
                "n": self.fit.n,
            }
        return told


def of_run(run: Run, frames: Frames | None = None) -> Results:
    """Work out all numbers of a run.

    Parameters
    ----------
    run : Run
        A run folder, or a bare capture (whose link is not known: no t_nic then).
    frames : Frames, optional
        Some of its frames; default: all.

    Returns
    -------
    Results

    Raises
    ------
    WiringError, ConfigurationError, FrameMatchError
        As :attr:`Run.frames`.
    FitError
        A latency file of the run is no such table.
    """
    chosen = analysis.frames(run) if frames is None else frames
    measured = timing.measure(run, chosen)
    give_back()
    findings = [*chosen.findings, *measured.findings]
    latency, fit = _latency(run, findings)
    missing = (
        "no measured latency: add [[latency]] to run.toml" if latency is None else "it has no line: see the findings"
    )
    model, t_sw = _equation(run, measured, fit, findings) if fit is not None else (None, unknown(missing))
    return Results(
        run=run,
        frames=chosen,
        timing=measured,
        usage={name: usage.of_bus(run, name) for name in chosen.hosts},
        latency=latency,
        fit=fit,
        model=model,
        t_sw=t_sw,
        findings=tuple(findings),
    )


def _latency(run: Run, findings: list[str]) -> tuple[pd.DataFrame | None, LatencyFit | None]:
    """Read the latency sweep of a run and fit its line."""
    entries = run.folder.run.get("latency", []) if run.folder is not None else []
    if run.folder is None or not entries:
        return None, None
    if len(entries) > 1:
        others = ", ".join(entry["file"] for entry in entries[1:])
        findings.append(f"several latency sweeps: t_sw is that of {entries[0]['file']}; left aside: {others}")
    table = read_latency(run.folder.path / entries[0]["file"])
    sigma = table["sigma_us"]
    try:
        fit = LatencyFit.of(table["length_bytes"], table["latency_us"], None if sigma.isna().any() else sigma)
    except FitError as error:
        findings.append(f"no line through {entries[0]['file']}: {error}")
        return table, None
    if fit.p_value is not None and fit.p_value < UNLIKELY:
        findings.append(
            f"the latencies of {entries[0]['file']} are no straight line within their errors: chi2 {fit.chi2:.1f} for "
            f"{fit.ndof} degrees of freedom (p = {fit.p_value:.1e}); the errors of t_sw are too small then"
        )
    return table, fit


def _equation(run: Run, measured: Timing, fit: LatencyFit, findings: list[str]) -> tuple[LatencyModel | None, Estimate]:
    """Put Equation 2.1 together and derive t_sw; say what is missing."""
    try:
        terms = [
            Term.measured("t_nic_us", t_nic_of_equation(measured)),
            Term.measured("R_PCI_send_us_per_byte", measured.send.effective),
            Term.measured("R_PCI_recv_us_per_byte", measured.receive.effective),
        ]
    except FitError as error:
        return None, unknown(str(error))
    assert run.folder is not None
    assert measured.r_net_us_per_byte is not None
    link = run.folder.run["link"]
    terms.append(Term.given("R_net_us_per_byte", measured.r_net_us_per_byte))
    model = LatencyModel.from_latency(fit, terms, link["preamble_bytes"])
    off = fit.slope - model.slope
    if abs(off.nominal_value) > SIGNIFICANT * off.std_dev:
        also = ""
        if measured.transit.depends:
            also = f"; t_nic does, by {2e3 * (measured.t_nic_line.slope.value or 0.0):+.2g} us per 1000 bytes both ways"
        findings.append(
            f"the measured latency's slope {fit.slope_us_per_byte} us/byte and R_net + R_PCI_send + R_PCI_recv = "
            f"{model.slope_us_per_byte} differ by {off.nominal_value / off.std_dev:+.1f} sigma: something else depends "
            f"on the length{also}"
        )
    t_sw = model.terms["t_sw_us"]
    if t_sw.number.nominal_value < -SIGNIFICANT * t_sw.number.std_dev:
        findings.append(
            f"t_sw comes out negative ({t_sw.estimate} us): the measured latency is shorter than what the trace shows; "
            "is it in us and of this bench, and is offset_us of the captures right?"
        )
    return model, t_sw.estimate


def t_nic_of_equation(measured: Timing) -> Estimate:
    """Return t_nic for Equation 2.1, which has one for all lengths.

    Where it depends on the length this is its mean over the frames, and how much it varies among them is part of sigma.
    """
    passed, at = measured.transit, measured.transit.at
    if not passed.depends:
        return passed.mean
    value = float(np.average(at["value"], weights=at["n"]))
    varies = float(np.sqrt(np.average((at["value"] - value) ** 2, weights=at["n"])))
    error = passed.line.intercept.sigma_measurement
    return Estimate(value, error, int(at["n"].sum()), sigma_frames=varies, unit="us")


def _slope_alone(measured: Timing) -> UFloat | None:
    """Return the slope of Equation 2.1, which needs no t_sw; None where a rate is not known."""
    try:
        rates = [
            Term.measured("R_PCI_send_us_per_byte", measured.send.effective),
            Term.measured("R_PCI_recv_us_per_byte", measured.receive.effective),
        ]
    except FitError:
        return None
    if measured.r_net_us_per_byte is None:
        return None
    return measured.r_net_us_per_byte + sum(rate.number for rate in rates)


def _line(intercept: UFloat | None, slope: UFloat | None) -> dict[str, Any]:
    """Return a line in the words of the JSON."""
    return {
        "intercept_us": None if intercept is None else float(intercept.nominal_value),
        "intercept_sigma_us": None if intercept is None else float(intercept.std_dev),
        "slope_us_per_byte": None if slope is None else float(slope.nominal_value),
        "slope_sigma_us_per_byte": None if slope is None else float(slope.std_dev),
    }
