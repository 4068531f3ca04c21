"""A number as ``pcitrace network --json`` prints it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from uncertainties import UFloat

__all__ = ["UNITS", "Parameter", "counted", "measured", "unknown"]

UNITS = {
    "intercept_us": "us",
    "slope_us_per_byte": "us/byte",
    "step_bytes": "bytes",
    "step_us": "us",
    "fwhm_us": "us",
    "sigma_us": "us",
    "sent": "frames",
    "received": "frames",
    "lost": "frames",
    "duplicated": "frames",
    "reordered": "frames",
    "loss_ratio": "1",
    "user_mbit_s": "Mbit/s",
    "wire_mbit_s": "Mbit/s",
    "spacing_us": "us",
    "latency_us": "us",
    "shift_us": "us",
    "floor_us": "us",
    "knee_us": "us",
    "buffer_frames": "frames",
    "buffer_bytes": "bytes",
    "t_sw_us": "us",
    "offset_us": "us",
    "drift_ppm": "1e-6",
    "asymmetry_bound_us": "us",
    "clock_off_us": "us",
    "beside_ratio": "1",
    "cpu_us_per_frame": "us",
    "interrupts_per_frame": "1",
}
"""Every number that a result may have, and its unit. A Mbit is 1e6 bits."""


EXACT = 1e-9
"""Relative uncertainty below which a number is shown as the exact one that it is, such as the length of a cell."""


@dataclass(frozen=True)
class Parameter:
    """A number of a result.

    Attributes
    ----------
    value : float or None
        None: not known; `reason` says why.
    sigma : float or None
        Standard uncertainty; 0 for a count, which is exact.
    unit : str
    n : int
        Frames, loops, or points it rests on.
    reason : str
        Why there is no value, or what restricts it.
    """

    value: float | None
    sigma: float | None
    unit: str
    n: int
    reason: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return what the JSON has."""
        return {"value": self.value, "sigma": self.sigma, "unit": self.unit, "n": self.n, "reason": self.reason}

    def __str__(self) -> str:
        if self.value is None:
            return f"unknown: {self.reason}"
        if not self.sigma or self.sigma < EXACT * abs(self.value):
            return f"{self.value:.10g} {self.unit}"
        from uncertainties import ufloat

        return f"{ufloat(self.value, self.sigma):P} {self.unit}"


def measured(name: str, value: UFloat | tuple[float, float], n: int, reason: str = "") -> Parameter:
    """Return a number with its uncertainty."""
    pair = value if isinstance(value, tuple) else (value.nominal_value, value.std_dev)
    return Parameter(float(pair[0]), float(pair[1]), UNITS[name], n, reason)


def counted(name: str, count: int | None, n: int, reason: str = "") -> Parameter:
    """Return a count; None where it is not known, with the reason why."""
    return unknown(name, reason, n) if count is None else Parameter(int(count), 0.0, UNITS[name], n)


def unknown(name: str, reason: str, n: int = 0) -> Parameter:
    """Return a number that is not known, and why."""
    return Parameter(None, None, UNITS[name], n, reason)
