"""Measures `list`, `check`, `find`, `--where` and `diff` against what is asked of them, into docs/benchmarks.md.

The bus is dense: 2 M transactions of `traffic.dense` with two idle clocks between them, 16 channels, all wired. With
all lines it is the fixture `blue33_seq6` at 200 MS/s, 61 channels with data words, again and again: 1.8 M transactions,
of which every seventh is a configuration access. Each figure is the best of several fresh processes, mostly of their
processor time; conditions and sequences are on 10 M rows that are decoded already. The exit status is 1 where a limit
is missed.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import traffic
from long import PAGE, put
from numpy.typing import NDArray

import pcitrace
from pcitrace.instrument.conditions import condition
from pcitrace.instrument.search import sequences
from pcitrace.instrument.stream import TRANSACTIONS

HEADING = "## The instrument"
PCITRACE = Path(sys.executable).with_name("pcitrace")
CONDITIONS = (
    "command in (config_read, config_write)",
    "wait_clks > 10 and termination != retry",
    "0xe8000000 <= address < 0xe8001000",
    'initiator == "GNT0#" and bytes & 1 == 1',
)
LONG = 1_000_000_000
"""Samples of the long capture."""
WIDE = Path(__file__).parent.parent / "fixtures" / "traces" / "blue33_seq6" / "bus.vcd.gz"
"""All lines of a bus, 6,000 transactions."""
FIRST = ["nice", "-n", "-15"] if os.geteuid() == 0 else []
"""Before a command whose time on the clock counts: root may have it run before others."""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    what: str
    value: float
    unit: str
    limit: float
    at_least: bool = False

    @property
    def kept(self) -> bool:
        """Whether the limit is."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def __str__(self) -> str:
        """As Markdown."""
        sign = ">=" if self.at_least else "<="
        missed = "" if self.kept else " **missed**"
        return f"| {self.what} | {self.value:.3g} {self.unit} | {sign} {self.limit:g} |{missed}"


def write_sr(path: Path, samples: NDArray[np.uint16], members: int = 1) -> Path:
    """A sigrok session of the channels of `traffic.dense`; the samples as often as it is to have members."""
    names = "".join(f"probe{bit}={name}\n" for bit, name in enumerate(traffic.CHANNELS_DENSE, 1))
    metadata = (
        "[global]\nsigrok version=0.5.2\n\n[device 1]\ncapturefile=logic-1\ntotal probes=16\n"
        f"samplerate=100 MHz\ntotal analog=0\n{names}unitsize=2\n"
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as session:
        session.writestr("version", "2")
        session.writestr("metadata", metadata)
        data = samples.tobytes()
        for number in range(members):
            session.writestr(f"logic-1-{number + 1}", data)
    return path


def write_wide(folder: Path, members: int) -> Path:
    """The capture with all lines as a sigrok session, its samples as often as it is to have members."""
    one, path = folder / "one.sr", folder / "wide.sr"
    export = ["export", WIDE, "--to", "sigrok", "--sample-rate", "200e6", "-o", one]
    subprocess.run([PCITRACE, *export], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    with zipfile.ZipFile(one) as session, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as out:
        for name in ("version", "metadata"):
            out.writestr(name, session.read(name))
        names = (name for name in session.namelist() if name.startswith("logic-1-"))
        data = b"".join(map(session.read, sorted(names, key=lambda name: int(name.rsplit("-", 1)[1]))))
        for number in range(members):
            out.writestr(f"logic-1-{number + 1}", data)
    return path


def processor_s(*arguments: object, times: int = 3) -> float:
    """Processor time of the command in a fresh process, the least of several, in s; what it prints goes into a file."""
    least = float("inf")
    for _ in range(times):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with tempfile.TemporaryFile() as out:
            subprocess.run([PCITRACE, *map(str, arguments)], stdout=out, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        least = min(least, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return least


def in_turn(works: Sequence[Callable[[], float]], times: int = 5) -> list[float]:
    """The least of each, taken in turn."""
    return [min(column) for column in zip(*([work() for work in works] for _ in range(times)), strict=True)]


def first_line_s(path: Path) -> float:
    """From the start of the process to its first line; on a busy machine the processor time of all its threads."""
    start = time.perf_counter()
    with subprocess.Popen(
        [*FIRST, PCITRACE, "list", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        took = time.perf_counter() - start
        threads = Path(f"/proc/{process.pid}/task").glob("*/schedstat")
        spent = sum(int(one.read_text().split()[0]) for one in threads) * 1e-9
        process.stdout.close()
        process.terminate()
    assert line
    return min(took, spent)


def peak_mib(path: Path) -> float:
    """The most memory that a listing of the whole capture holds."""
    code = (
        "import sys; from pcitrace.cli import main; main(['list', sys.argv[1]]); "
        "peak = next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')); "
        "print(peak, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, path], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=True
    )
    return int(done.stderr.split()[-1]) / 1024


def rates(path: Path) -> list[Row]:
    """Conditions and sequences on rows that are decoded already, 10 M of them."""
    bus = pcitrace.open(path).bus
    rows = bus.arrow("transactions")
    rows = pa.concat_tables([rows] * (10_000_000 // len(rows) + 1)).slice(0, 10_000_000).combine_chunks()
    start_us = np.linspace(0.0, 2.5e6, len(rows))

    def took(work: Callable[[], object]) -> float:
        before = time.process_time()
        work()
        return time.process_time() - before

    read = [condition(text, TRANSACTIONS) for text in CONDITIONS]
    chosen = in_turn([partial(took, partial(one.fulfilled, rows)) for one in read])
    millions = len(rows) / 1e6
    found = [
        Row(f"`--where '{text}'`", millions / s, "M transactions/s", 20, True)
        for text, s in zip(CONDITIONS, chosen, strict=True)
    ]
    steps = [condition(text, TRANSACTIONS) for text in ("termination == retry", "wait_clks > 10")]

    def search() -> object:
        return sequences([one.fulfilled(rows) for one in steps], start_us, [None, 5.0])

    [s] = in_turn([lambda: took(search)])
    return [*found, Row("`find 'retry' 'wait_clks > 10 within 5us'`", millions / s, "M transactions/s", 20, True)]


def measure(folder: Path, samples: int, long: int) -> list[Row]:
    """Everything."""
    dense = traffic.dense(samples, idle=2)
    path = write_sr(folder / "dense.sr", dense)
    other = dense.copy()
    # A third of the way there is another end of a transaction, and twice as far three clocks are lost.
    other = np.delete(other, slice(samples * 2 // 3, samples * 2 // 3 + 9))
    other[samples // 3 : samples // 3 + 6] |= 0x3E
    wide = write_wide(folder, max(samples * 6 // 1_000_000, 1))
    one_million = write_sr(folder / "a.sr", dense[: samples // 2])
    changed = write_sr(folder / "b.sr", other[: samples // 2 - 9])
    diff = min(processor_of_diff(one_million, changed) for _ in range(3))
    quiet = np.full(10_000_000, traffic.IDLE, np.uint16)
    quiet[:1_000_000] = dense[:1_000_000]
    quiet |= traffic.clock(len(quiet))
    short = write_sr(folder / "short.sr", quiet, max(long // len(quiet) // 5, 1))
    whole = write_sr(folder / "long.sr", quiet, long // len(quiet))
    first = min(first_line_s(whole) for _ in range(5))
    return [
        Row("`check` against `decode -o t.parquet`, processor time", check_in_decodes(path), "times", 3),
        Row("the same with all lines", check_in_decodes(wide), "times", 3),
        Row("`list` to a file", lines_a_second(path) / 1e6, "M lines/s", 1, True),
        Row("the same with all lines and data words", lines_a_second(wide) / 1e6, "M lines/s", 1, True),
        Row(f"first line of a `.sr` of {long:,} samples", first, "s", 0.3),
        Row("most memory of `list` of it, against a fifth of it", peak_mib(whole) / peak_mib(short), "times", 1.1),
        *rates(path),
        Row("`diff` of two captures of 1 M transactions, some unlike", diff, "s", 5),
    ]


def check_in_decodes(path: Path) -> float:
    """Processor time of `check` over that of `decode` of the same file."""
    decode, check = in_turn(
        [lambda: processor_s("decode", path, "-o", path.with_suffix(".parquet"), times=1),
         lambda: processor_s("check", path, times=1)], 3
    )  # fmt: skip
    return check / decode


def lines_a_second(path: Path) -> float:
    """Lines that `list` writes into a file in a second."""
    written = path.with_suffix(".txt")
    took = float("inf")
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        start = time.perf_counter()
        with written.open("wb") as out:
            subprocess.run([*FIRST, PCITRACE, "list", path], stdout=out, check=True)
        wall = time.perf_counter() - start
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        # Where others have the processors, the processor time of all threads is the better upper bound.
        took = min(took, wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    with written.open("rb") as lines:
        return sum(1 for _ in lines) / took


def processor_of_diff(a: Path, b: Path) -> float:
    """Processor time of a `diff` that finds differences."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([PCITRACE, "diff", a, b], stdout=subprocess.DEVNULL, check=False)
    assert done.returncode == 1
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    """Measure, and put the section into the page; 1 where a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=PAGE)
    parser.add_argument("--samples", type=int, default=50_000_000, help="of the dense capture (default: %(default)s)")
    parser.add_argument("--long", type=int, default=LONG, help="samples of the long capture (default: %(default)s)")
    args = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    # As pip leaves it: a user's installation has its bytecode.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(Path(folder), args.samples, args.long)
    text = __doc__.split("\n\n")[1] if __doc__ else ""
    text += (
        f"\nThe load average was {os.getloadavg()[0]:.1f}. Where it is above 2, other processes wanted the processors; "
        "`list` and its first\nline ran before them, and what is less of their time and the processor time of all "
        "threads counts."
    )
    put(args.output, HEADING, "\n".join([HEADING, "", text, "", "| what | measured | limit |", "|---|---|---|",
                                         *map(str, rows), ""]))  # fmt: skip
    return int(not all(row.kept for row in rows))


if __name__ == "__main__":
    sys.exit(main())
