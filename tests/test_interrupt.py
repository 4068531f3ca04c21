"""Ctrl-C ends every step that can take long, within a fifth of a second."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

AT_ONCE_S = 0.2

#: What the child does, over and over, until it is told to stop; `path` is its file, `out` where it may write.
STEPS = {
    "open a vcd": "_kernel.open(str(path / 'long.vcd'))",
    "open a csv": "_kernel.open(str(path / 'long.csv'))",
    "decode": "_kernel.decode(busy(), [BUS])",
    "decode on one thread": "_kernel.decode(busy(), [BUS], threads=1)",
    "decode with data phases": "_kernel.decode(busy(), [BUS], data_phases=True)",
    "recover the clock": "_kernel.decode(busy(), [BUS], recover_clock=True)",
    "judge by rules": "_kernel.decode(busy(), [BUS], rules=['M01', 'T07'])",
    "wire": "_kernel.Wire(busy(), WIRE).read(busy())",
    "write csv": "_kernel.decode_to_files(busy(), [BUS], transactions=out('t.csv'), data_phases=out('d.csv'))",
    "write parquet": "_kernel.decode_to_files(busy(), [BUS], transactions=out('t.parquet'))",
    "read samples": "busy().read_samples()",
    "resample a vcd": "_kernel.write_samples(vcd(), 10**9, len)",
    "read a lattice": "lattice()",
    "read releases": "releases()",
    "parts": "[len(part) for part in _kernel.parts(busy(), [BUS]) if part is not None]",
}

CHILD = '''
import functools, sys, time
from pathlib import Path
from pcitrace import _kernel

path = Path(sys.argv[1])
samples = (path / "busy.bin").read_bytes() * 40
names = ["CLK", "FRAME#", "IRDY#", "TRDY#", "DEVSEL#", "STOP#", "TXEN", "TXCLK", *(f"TXDATA{n}" for n in range(8))]
BUS = {"name": "A", "width": None, "lines": {n: (k, 0, n.endswith("#")) for k, n in enumerate(names[:6])}}
WIRE = {n: (k, 0, False) for k, n in enumerate(names) if n.startswith("TX")}
capture = _kernel.from_samples(samples, 2, names, 1e8)
busy = lambda: capture
out = lambda name: str(path / name)


def lattice():
    """Items that may be anything, so that one search takes seconds."""
    import numpy as np
    from pcitrace import lattice as l
    rng = np.random.default_rng(1)
    n, goals = 60_000, []
    cost = lambda *shape: rng.uniform(0, 6, shape).astype(np.float32)
    begin = np.arange(n) * 1.0
    sequence = l.Sequence(begin, begin, begin + 0.2, np.ones(n, np.uint32), np.zeros(n, np.uint8),
                          np.full(n, -1), np.full(n, -1), cost(n, 13))
    for after in (False, True):
        times = np.arange(0, n, 2) + 0.5
        count = len(times)
        least, most, held = np.full(count, 1, np.uint32), np.full(count, 4, np.uint32), np.zeros(count, np.uint8)
        goals.append(l.Goals(times, least, most, held, cost(count), after, after, times, beyond=3.0))
    track = lambda: l.Track(cost(2, l.BINS), cost(2, l.BINS), cost(l.BINS), cost(l.CONTEXTS, l.BINS), cost(2, l.BINS),
                            cost(2, 8), 3, cost(3, 8), cost(8), cost(3))
    table = l.Table((track(), track()), cost(2 * l.CONTEXTS, l.BINS), cost(l.CONTEXTS, 16), cost(4 * l.CONTEXTS, 5),
                    back=8, unit=4, apart=2.0)
    l.read(sequence, tuple(goals), table)


def releases():
    import numpy as np
    from pcitrace import releases as r
    n = 60_000
    times, zeros = np.arange(n) * 1.0, np.zeros(n, np.float32)
    place, none = np.zeros((n, 4), np.float32), np.zeros(n, np.uint64)
    here = r.Items(times, zeros, zeros, place, zeros, np.zeros(n, np.uint32), none)
    there = r.Targets(times + 40, times + 40, np.full(n, -np.inf), zeros, zeros + np.float32(9), np.zeros(n, np.uint64))
    r.read(here, there, r.Table(np.zeros(r.BINS, np.float32), np.zeros((4, 4), np.float32), before=1.0))


vcd = functools.cache(lambda: _kernel.open(str(path / "long.vcd")))
print("ready", flush=True)
try:
    while True:
        STEP
except KeyboardInterrupt:
    print(time.monotonic(), time.process_time(), flush=True)
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Files that take seconds to read."""
    import numpy as np

    path = tmp_path_factory.mktemp("interrupt")
    noise = np.random.default_rng(1)
    # An odd bus on which something goes on all the time, and a wire with a frame now and then.
    count = 1 << 20
    clock = np.arange(count) // 4 % 2
    bus = np.repeat(noise.integers(0, 32, count // 8), 8) << 1
    enable = np.repeat(noise.integers(0, 2, count >> 12), 1 << 12) << 6
    data = noise.integers(0, 512, count) << 7
    (path / "busy.bin").write_bytes((clock | bus | enable | data).astype("<u2").tobytes())
    head = '$timescale 1 ns $end $var wire 1 ! CLK $end $var wire 1 " FRAME# $end $enddefinitions $end\n'
    changes = '1!\n0"\n0!\n1"\n' * (1 << 16)
    (path / "long.vcd").write_text(head + "".join(f"#{time}\n{changes}" for time in range(200)))
    (path / "long.csv").write_text("Time [s],CLK,FRAME#\n0.0,0,1\n" + "1e-3,1,1\n1e-3,0,0\n" * (8 << 20))
    yield path
    for file in path.iterdir():
        file.unlink()


def stop(step: str, folder: Path) -> tuple[float, float]:
    """From the signal to where the interrupt arrives: seconds, and those of them that the child had a processor."""
    program = CHILD.replace("STEP", STEPS[step])
    with subprocess.Popen([sys.executable, "-c", program, folder], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(0.3)
        user, system = Path(f"/proc/{child.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
        sent, had = time.monotonic(), (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
        os.kill(child.pid, signal.SIGINT)
        seen, had_then = map(float, child.stdout.readline().split())
    assert child.returncode == 0
    return seen - sent, had_then - had


@pytest.mark.parametrize("step", STEPS)
def test_ctrl_c_ends_it_at_once(step: str, folder: Path) -> None:
    took_s, had_s = stop(step, folder)
    # On a machine that does other things as well, what counts is the time that the child was given.
    assert min(took_s, had_s) <= AT_ONCE_S
    assert not [file.name for file in folder.iterdir() if file.name.endswith(".part")], "nothing half written is left"


def interrupt(child: subprocess.Popen[bytes]) -> None:
    """Press Ctrl-C; the child ends as those do that were interrupted."""
    os.kill(child.pid, signal.SIGINT)
    try:
        assert child.wait(10) == 130
    except subprocess.TimeoutExpired:
        child.kill()
        raise


@pytest.mark.parametrize("command", ["decode", "stats", "check"])
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("said", [b"", b"\x00\x1f" * 100_000], ids=["nothing yet", "some samples"])
def test_ctrl_c_ends_the_wait_for_a_pipe(command: str, threads: int, said: bytes) -> None:
    """An analyser that waits for its trigger says nothing for as long as it likes."""
    names = "CLK,FRAME#,IRDY#,TRDY#,DEVSEL#,STOP#,D6,D7,D8"
    options = ["--format", "binary", "--channels", names, "--rate", "100e6", "--threads", str(threads)]
    with subprocess.Popen(
        [sys.executable, "-m", "pcitrace", command, "-", *options], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdin is not None
        child.stdin.write(said)
        child.stdin.flush()
        time.sleep(1.0)
        assert child.poll() is None
        sent = time.monotonic()
        interrupt(child)
        assert time.monotonic() - sent < 5 * AT_ONCE_S, "with the end of Python itself, on a busy machine"


def test_ctrl_c_ends_the_wait_for_who_writes_a_named_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    options = ["--format", "binary", "--channels", "CLK,FRAME#,IRDY#,TRDY#", "--rate", "100e6"]
    with subprocess.Popen([sys.executable, "-m", "pcitrace", "stats", tmp_path / "fifo", *options]) as child:
        time.sleep(1.0)
        interrupt(child)
