"""Who may import whom: the two packages only meet in the run folder, and the simulator does not mark its own work."""

from __future__ import annotations

import ast
import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent

# What simulation and analysis may both use: the contract between them, and the words for what goes wrong.
CONTRACT = {"pcitrace", "pcitrace.configuration", "pcitrace.errors", "pcitrace.profiles", "pcitrace.runfolder"}


def modules(root: Path) -> dict[str, Path]:
    """Modules below a package's folder, by dotted name."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


PCITRACE = modules(REPOSITORY / "pcitrace")
PCICAP = modules(REPOSITORY / "capture" / "pcicap")


def imports(name: str, path: Path, *, at_once: bool = False) -> set[str]:
    """Modules that a file imports anywhere in it, in functions too; or only those needed to import it."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body if at_once else ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            names = {f"{module}.{alias.name}" for alias in node.names}
            found |= names if names <= set(PCITRACE) else {module, *names}
    return found


def reached(*starts: str) -> set[str]:
    """Modules of pcitrace that the given ones and all below them need; the package's own __init__ is not followed."""
    todo = [name for name in PCITRACE for start in starts if name == start or name.startswith(f"{start}.")]
    seen: set[str] = set()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        if name != "pcitrace":
            todo += [other for other in imports(name, PCITRACE[name]) if other in PCITRACE]
    return seen


def test_there_are_modules_to_look_at() -> None:
    assert {"pcitrace.run", "pcitrace.wiring", "pcitrace.cli.decode"} <= set(PCITRACE)
    assert imports("pcitrace.run", PCITRACE["pcitrace.run"]) >= {"pcitrace.wiring", "numpy", "pcitrace._kernel"}


@pytest.mark.parametrize(
    ("package", "other"), [("pcitrace", "pcicap"), ("pcicap", "pcitrace")], ids=["pcitrace", "pcicap"]
)
def test_the_packages_do_not_import_each_other(package: str, other: str) -> None:
    files = PCITRACE if package == "pcitrace" else PCICAP
    assert files
    guilty = {
        name for name, path in files.items() for used in imports(name, path) if used.split(".", maxsplit=1)[0] == other
    }
    assert not guilty


def test_the_simulator_shares_no_code_with_the_analysis() -> None:
    simulation = reached("pcitrace.simulate")
    analysis = reached("pcitrace.traffic", "pcitrace.frames", "pcitrace.timing")
    assert "pcitrace.traffic" in analysis
    assert not (simulation & analysis) - CONTRACT
    assert not {name for name in analysis if name.startswith("pcitrace.simulate")}


def test_the_contract_holds_no_analysis() -> None:
    assert reached(*(CONTRACT - {"pcitrace"})) <= CONTRACT


def test_imports_go_one_way() -> None:
    """Those in functions and for types too: a cycle that is put off is one."""
    below = {
        name: {other for other in imports(name, path) if other in PCITRACE and other != "pcitrace"}
        for name, path in PCITRACE.items()
        if name != "pcitrace"
    }
    while free := {name for name, needed in below.items() if not needed & set(below)}:
        below = {name: needed for name, needed in below.items() if name not in free}
    assert not below, "these import each other in a circle, or need some that do"


@pytest.mark.parametrize(
    ("lower", "upper"),
    list(
        itertools.combinations(
            ("errors", "wiring.linenames", "wiring", "run", "traffic", "frames", "timing", "results", "report"), 2
        )
    ),
)
def test_the_pipeline_is_not_imported_backwards(lower: str, upper: str) -> None:
    todo, seen = {f"pcitrace.{lower}"}, set()
    while todo:
        name = todo.pop()
        seen.add(name)
        todo |= (
            {other for other in imports(name, PCITRACE[name], at_once=True) if other in PCITRACE} - seen - {"pcitrace"}
        )
    assert f"pcitrace.{upper}" in PCITRACE
    assert f"pcitrace.{upper}" not in seen


def test_nothing_in_the_kernel_but_its_folder_knows_pci() -> None:
    """Another bus would have a folder beside `pci/`."""
    source = REPOSITORY / "pcitrace" / "kernel" / "src"
    named: dict[str, set[str]] = {}
    for path in source.rglob("*.rs"):
        name = path.relative_to(source).parts[0].removesuffix(".rs")
        # `crate::a`, and `crate::{a, b::c}`.
        uses = re.findall(r"\bcrate::(\w+|\{[^;]*\})", path.read_text(encoding="utf-8"))
        named.setdefault(name, set()).update(word for use in uses for word in re.findall(r"\w+", use))
    assert {"columns", "lattice", "pipeline", "read", "samples", "write"} <= named.keys()
    assert "pipeline" in named["pci"]
    # The bindings to Python bind this bus.
    assert {name for name, others in named.items() if "pci" in others} == {"pci", "python"}
    # Bindings are beside what they bind: nothing else reaches PCI through them.
    assert {name for name, others in named.items() if "python" in others} <= {"lattice", "pyramid", "python"}


def test_importing_pcitrace_is_light() -> None:
    script = "import sys, pcitrace, pcitrace.cli; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split()
    assert "pcitrace.run" in loaded
    assert not {"numpy", "pandas", "pyarrow", "matplotlib", "tqdm", "scipy"} & set(loaded)
