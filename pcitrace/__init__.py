"""From a logic-analyser capture of a PCI bus to exact transactions, and from these to NIC and PCI constants.

Start with :func:`pcitrace.open`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pcitrace.analysed import AnalysedRun as Run
from pcitrace.analysed import open
from pcitrace.errors import (
    CaptureFormatError,
    ConditionError,
    ConfigurationError,
    DecodeError,
    FitError,
    FrameMatchError,
    PciTraceError,
    WiringError,
)
from pcitrace.run import Bus, Capture

if TYPE_CHECKING:
    from pcitrace.campaign import Campaign
    from pcitrace.estimate import Estimate
    from pcitrace.model import LatencyModel

    __version__: str

__all__ = [
    "Bus",
    "Campaign",
    "Capture",
    "CaptureFormatError",
    "ConditionError",
    "ConfigurationError",
    "DecodeError",
    "Estimate",
    "FitError",
    "FrameMatchError",
    "LatencyModel",
    "PciTraceError",
    "Run",
    "WiringError",
    "__version__",
    "open",
    "stream",
]

_LAZY = {
    "Campaign": "pcitrace.campaign",
    "Estimate": "pcitrace.estimate",
    "LatencyModel": "pcitrace.model",
    "stream": "pcitrace.streaming",
}
"""Public names whose modules need pandas or more, and are therefore imported when first used."""

_MODULES = ("network", "plot", "report", "results", "schema", "simulate", "timing")
"""Modules that are meant to be used; imported when first used as well."""


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("pcitrace")
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    if name in _MODULES:
        return import_module(f"pcitrace.{name}")
    raise AttributeError(f"module 'pcitrace' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES])
