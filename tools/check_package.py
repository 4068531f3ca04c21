"""Check the wheel and the sdist in a folder: what they hold, and that each works in a clean environment.

usage: check_package.py DIST
"""

import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
CAPTURE = REPOSITORY / "fixtures" / "traces" / "blue33_seq6" / "ctl_250MSs.sr"
SCRIPT = """
import sys, pcitrace
run = pcitrace.open(sys.argv[1])
assert len(run.bus.transactions) == 5976, run.bus.transactions
assert "site-packages" in pcitrace.__file__, pcitrace.__file__
"""

# The sdist's kernel is compiled once more. It is to compile and to work, so it is not optimised; that of the wheel is.
QUICK = "--config-settings=maturin.build-args=--config profile.release.package.pcitrace-kernel.opt-level=0"


def tracked(*patterns: str) -> set[str]:
    """Files of the repository that match; the truth about what belongs into a package."""
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=REPOSITORY, check=True, capture_output=True, text=True)
    return set(listed.stdout.splitlines())


def check_wheel(path: Path) -> None:
    """All Python and data files of the package are in it, nothing of the kernel's sources."""
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
    wanted = {name for name in tracked("pcitrace") if not name.startswith("pcitrace/kernel/")}
    assert not wanted - names, f"not in the wheel: {sorted(wanted - names)}"
    extra = {name for name in names - wanted if name.startswith("pcitrace/")}
    assert len(extra) == 1, f"in the wheel without a reason: {sorted(extra)}"
    assert extra.pop().startswith("pcitrace/_kernel."), "no kernel in the wheel"
    assert any("licenses/LICENSE" in name for name in names), "no licence in the wheel"


def check_sdist(path: Path) -> None:
    """All sources of the package and of the kernel are in it, and what tests and documentation are made of."""
    with tarfile.open(path) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    wanted = tracked("pcitrace", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "Cargo.lock", "Makefile")
    wanted |= tracked("docs", "fixtures", "notebooks", "tests", "tools")
    missing = {name for name in wanted - names if not name.startswith("pcitrace/kernel/fuzz/")}
    assert not missing, f"not in the sdist: {sorted(missing)}"


def try_out(package: Path, *options: str) -> None:
    """Install into a clean environment and do the main job from another folder."""
    with tempfile.TemporaryDirectory(prefix="pcitrace-package-") as folder:
        venv.create(folder, with_pip=True)
        programs = Path(folder) / "bin"
        install = [programs / "pip", "install", "--quiet", "--no-compile", *options, package.resolve()]
        subprocess.run(install, cwd=folder, check=True)
        subprocess.run([programs / "python", "-c", SCRIPT, CAPTURE], cwd=folder, check=True)
        subprocess.run([programs / "pcitrace", "decode", CAPTURE, "-o", "t.parquet"], cwd=folder, check=True)
    print(f"{package.name}: complete, and works in a clean environment")


def main() -> None:
    """Check one wheel and one sdist."""
    dist = Path(sys.argv[1])
    [wheel], [sdist] = dist.glob("*.whl"), dist.glob("*.tar.gz")
    assert "-abi3-" in wheel.name, f"{wheel.name}: not for all Python versions (abi3)"
    check_wheel(wheel)
    check_sdist(sdist)
    try_out(wheel)
    try_out(sdist, QUICK)


if __name__ == "__main__":
    main()
