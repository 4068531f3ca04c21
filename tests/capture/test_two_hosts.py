"""docs/capture/two-hosts.md followed word for word: its commands, on hosts as it has them, say what it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import REPOSITORY, bus_samples, read_run, write_sr
from network import Host, _namespaces, run

PAGE = (REPOSITORY / "docs/capture/two-hosts.md").read_text()
B = "02:00:00:00:00:0b"
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture
def lab() -> Iterator[tuple[Host, Host]]:
    """Two hosts with a cable between their interfaces eth1, down as they are after the start."""
    with _namespaces(2) as (a, b):
        words = ["ip", "link", "add", "eth1", "netns", a.namespace, "type", "veth"]
        run(*words, "peer", "name", "eth1", "netns", b.namespace, "address", B)
        a.ip("link", "set", "lo", "up")
        yield a, b


def _said(host: Host, folder: Path, line: str) -> str:
    """Run a line as a shell of this host would; what it printed. Ten seconds of background are one here."""
    words = host.command("bash", "-c", line.replace("--seconds 10", "--seconds 1"))
    environment = {**os.environ, "PATH": PATH}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, (line, done.stderr)
    return done.stdout + done.stderr


def _of(host: str, text: str) -> list[str]:
    return [line.split("#")[0].strip() for line in re.findall(rf"^{host}\$ (.*)$", text, re.MULTILINE)]


def _edited(example: str, source: Path) -> str:
    """The example plan with the analyser it offers where none is at hand."""
    begin, end = example.index('driver = "'), example.index("# Keep only what follows")
    replay = f'[analysers.replay]\nsource = "{source}"\n'
    return example[:begin] + replay + example[end:].replace('nic = "acenic"', "").replace("count = 1000", "count = 50")


def test_every_step_does_what_the_page_says(lab: tuple[Host, Host], tmp_path: Path) -> None:
    a, b = lab
    set_up = re.findall(r"^((?:ip|sysctl) .*eth1.*)$", PAGE, re.MULTILINE)
    assert len(set_up) == 3
    for host in lab:
        for line in set_up:
            _said(host, tmp_path, line)
    [serve] = _of("B", PAGE)
    promised = re.search(r"framegen serve.*# says: (.*)", PAGE)
    assert promised
    with (tmp_path / "serve").open("w") as out:
        served = subprocess.Popen(
            b.command("bash", "-c", f"exec {serve}"), env={**os.environ, "PATH": PATH}, stdout=out
        )
    try:
        until = time.monotonic() + 60
        while not (said := (tmp_path / "serve").read_text()) and time.monotonic() < until:
            time.sleep(0.05)
        assert said.splitlines()[0] == promised[1]
        steps = _of("A", PAGE)
        hello, devices, background, example, check, record, report = steps
        assert f"{B}:" in _said(a, tmp_path, hello)
        assert "eth1" in _said(a, tmp_path, devices)
        assert "lost" in _said(a, tmp_path, background)
        _said(a, tmp_path, example)
        source = write_sr(tmp_path / "source.sr", bus_samples(300_000).tobytes())
        plan = tmp_path / "plan.toml"
        plan.write_text(_edited(plan.read_text(), source))
        assert "plan.toml: ok" in _said(a, tmp_path, check)
        printed = _said(a, tmp_path, record)
        shown = PAGE[PAGE.index(f"A$ {record}") : PAGE.index(f"A$ {report}")].splitlines()[2:]
        for line in shown:
            if "analyser 21.3 M" not in line:  # progress, which a terminal shows and a run of a second has not
                pattern = re.escape(line).replace(re.escape("50.0 M"), r"[\d.]+ [Mk]")
                assert re.search(rf"^{pattern}$", printed, re.MULTILINE), (line, printed)
                printed = printed[printed.index(line.split(":")[0]) :]
        _said(a, tmp_path, report)
    finally:
        served.terminate()
        served.wait(60)
    assert (tmp_path / "first.html").stat().st_size > 10_000
    assert read_run(tmp_path / "runs/first")["complete"]
