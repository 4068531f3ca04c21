"""What all tests share: hypothesis profiles, the shared folder, goldens."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import hypothesis
import pytest

REPOSITORY = Path(__file__).resolve().parent.parent

# A shell has what it starts in the background ignore Ctrl-C, and so would all that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    max_examples=50,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large],
)
hypothesis.settings.register_profile(
    "deep", hypothesis.settings.get_profile("ci"), derandomize=False, max_examples=5000
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --update-golden: write the goldens instead of comparing with them."""
    parser.addoption("--update-golden", action="store_true", help="write golden files instead of comparing")


def pytest_collection_finish() -> None:
    """Leave what was imported and collected out of the garbage collection: it stays, and searching it takes time."""
    gc.collect()
    gc.freeze()


def shared_dir() -> Path:
    """Return the folder `shared` beside the repository; without it fail in CI, skip the test elsewhere."""
    folder = REPOSITORY.parent / "shared"
    if not folder.is_dir():
        if "CI" in os.environ:
            pytest.fail(f"{folder} is not there; in CI the tests need it")
        pytest.skip(f"{folder} is not there")
    return folder


def needed_program(name: str) -> str:
    """Return the path of a program that a test uses as its oracle; without it the test fails."""
    path = shutil.which(name)
    if path is None:
        pytest.fail(f"{name} is not installed: this test needs it as its oracle (apt-get install {name})")
    return path


def peak_memory(arguments: list[str]) -> tuple[int, str, int]:
    """Run the command in a process of its own; its exit status, its output, and the most memory it held, in KiB."""
    # VmHWM, not ru_maxrss: that one begins with what this process holds.
    code = (
        "import sys; from pcitrace.cli import main; status = main(sys.argv[1:]); "
        "peak = [line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')]; "
        "print(f'{status} {peak[0]}')"
    )
    command = [sys.executable, "-c", code, *arguments]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    status, kib = map(int, lines[-1].split())
    return status, "\n".join(lines[:-1]), kib


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether goldens are to be written."""
    return bool(request.config.getoption("--update-golden"))
