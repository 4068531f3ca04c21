"""From a logic-analyser capture of a PCI bus to exact transactions, and from these to NIC and PCI constants.

Start with :func:`pcitrace.open`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pcitrace.errors import (
    CaptureFormatError,
    ConfigurationError,
    DecodeError,
    FitError,
    FrameMatchError,
    PciTraceError,
    WiringError,
)
from pcitrace.run import Bus, Capture, Run, open

if TYPE_CHECKING:
    from pcitrace.model import LatencyModel

    __version__: str

__all__ = [
    "Bus",
    "Capture",
    "CaptureFormatError",
    "ConfigurationError",
    "DecodeError",
    "FitError",
    "FrameMatchError",
    "LatencyModel",
    "PciTraceError",
    "Run",
    "WiringError",
    "__version__",
    "open",
]

_LAZY = {"LatencyModel": "pcitrace.model"}
"""Public names whose modules need pandas or more, and are therefore imported when first used."""


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("pcitrace")
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'pcitrace' has no attribute {name!r}")
