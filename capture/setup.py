"""Builds framegen into the wheel. All else is in pyproject.toml, which cannot ask rustc for the name of its host."""

import os
import re
import subprocess

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools_rust import RustBin, Strip


def host_target() -> str:
    """Target of this machine, as rustc calls it."""
    said = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True).stdout
    match = re.search(r"^host: (\S+)$", said, re.MULTILINE)
    if match is None:
        raise RuntimeError(f"rustc -vV names no host: {said!r}")
    return match[1]


class AnyPython(bdist_wheel):
    """The wheel holds a program, not an extension module: it suits every Python of this platform."""

    def get_tag(self) -> tuple[str, str, str]:
        """Python, ABI and platform."""
        return "py3", "none", super().get_tag()[2]


setup(
    cmdclass={"bdist_wheel": AnyPython},
    rust_extensions=[
        RustBin(
            "framegen",
            path="framegen/Cargo.toml",
            debug=False,
            strip=Strip.All,
            # One file that runs on every Linux of this architecture, whatever its C library. With a target named, the
            # flag is for framegen alone and not for the procedural macros that are compiled on the way.
            args=["--target", host_target()],
            env={**os.environ, "RUSTFLAGS": "-C target-feature=+crt-static"},
        )
    ],
)
