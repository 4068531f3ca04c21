#!/bin/sh
# Builds wheel and sdist of pcicap, installs each into a clean environment, and tries what was installed.
# usage: check-package.sh [FOLDER FOR WHEEL AND SDIST]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
dist=${1:-$here/dist}
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" -m venv "$work/build"
"$work/build/bin/pip" install --quiet build
rm -rf "$dist"
"$work/build/bin/python" -m build --outdir "$dist" "$here" > "$work/build.log" 2>&1 || { cat "$work/build.log" >&2; exit 1; }

"$python" - "$dist" <<'CHECK'
import pathlib, sys, tarfile, zipfile

(wheel,) = pathlib.Path(sys.argv[1]).glob("*.whl")
(sdist,) = pathlib.Path(sys.argv[1]).glob("*.tar.gz")
inside = zipfile.ZipFile(wheel).namelist()
assert any(name.endswith(".data/scripts/framegen") for name in inside), "the wheel is without framegen"
assert "pcicap/example-plan.toml" in inside and "pcicap/py.typed" in inside, "the wheel is without its data"
assert not any(name.endswith(".rs") for name in inside), "the wheel carries Rust source"
source = [name.partition("/")[2] for name in tarfile.open(sdist).getnames()]
for needed in ("framegen/Cargo.toml", "framegen/src/main.rs", "pcicap/cli.py", "LICENSE", "setup.py"):
    assert needed in source, f"the sdist is without {needed}"
print(f"{wheel.name}: {wheel.stat().st_size // 1024} KiB, {sdist.name}: {sdist.stat().st_size // 1024} KiB")
CHECK

for package in "$dist"/*.whl "$dist"/*.tar.gz; do
    "$python" -m venv --clear "$work/try"
    "$work/try/bin/pip" install --quiet "$package"
    "$work/try/bin/pcicap" --version
    "$work/try/bin/framegen" --version
    if ldd "$work/try/bin/framegen" > "$work/ldd" 2>&1 && ! grep -q "statically linked" "$work/ldd"; then
        echo "framegen needs shared libraries:" >&2; cat "$work/ldd" >&2; exit 1
    fi
    "$work/try/bin/pcicap" plan --example > "$work/plan.toml"
    # all is right with the example but, on most machines, its interface
    "$work/try/bin/pcicap" plan --check "$work/plan.toml" > /dev/null 2> "$work/said" || grep -q "no interface" "$work/said"
    "$work/try/bin/framegen" interfaces --json > /dev/null
    # numpy alone comes with it
    "$work/try/bin/python" -I -c "
import importlib.metadata, sys
import pcicap.cli, pcicap.record
found = sorted(d.metadata['Name'] for d in importlib.metadata.distributions())
assert set(found) <= {'numpy', 'pcicap', 'pip', 'setuptools', 'wheel'}, found
assert not {'pcitrace', 'pandas'} & set(sys.modules)
"
    # a recording of the demo device, from configuration to run folder
    cat > "$work/demo.toml" <<'PLAN'
format = 1
[[analysers]]
name = "la"
driver = "demo"
options = { logic_channels = 8, analog_channels = 0 }
rate_hz = 1_000_000
samples = 100_000
channels = { D0 = "CLK", D1 = "FRAME#", D2 = "IRDY#", D3 = "TRDY#" }
[hosts.A]
PLAN
    rm -rf "$work/run"
    "$work/try/bin/pcicap" record --quiet "$work/demo.toml" -o "$work/run"
    grep -q "^complete = true" "$work/run/run.toml"
    echo "$(basename "$package"): installed and tried"
done
