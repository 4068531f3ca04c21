"""The exceptions: one root, and what each carries."""

from __future__ import annotations

import inspect
from pathlib import Path

import pcitrace
from pcitrace import errors


def test_all_errors_have_one_root_and_are_public() -> None:
    classes = {
        name for name, value in vars(errors).items() if inspect.isclass(value) and value.__module__ == errors.__name__
    }
    assert classes == set(errors.__all__)
    for name in classes:
        assert issubclass(getattr(errors, name), errors.PciTraceError)
        assert getattr(pcitrace, name) is getattr(errors, name)


def test_errors_carry_what_a_program_needs() -> None:
    error = errors.CaptureFormatError("a.sr, metadata, byte 17: no rate", "a.sr", 17)
    assert (str(error), error.path, error.offset) == ("a.sr, metadata, byte 17: no rate", Path("a.sr"), 17)
    wiring = errors.WiringError("no CLK", missing=["CLK"], available=(name for name in ("D0", "D1")))
    assert (wiring.missing, wiring.available) == (("CLK",), ("D0", "D1"))
    configuration = errors.ConfigurationError("run.toml: hosts.A: no bus", "run.toml", "hosts.A")
    assert (configuration.path, configuration.key) == (Path("run.toml"), "hosts.A")
