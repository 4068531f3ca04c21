"""The oracle against the truth of the reference traces: it must be right before the kernel is compared with it."""

from __future__ import annotations

import itertools
import zipfile
from pathlib import Path

import oracle
import pytest
import slow_vcd
import truth
from conftest import shared_dir

COLUMNS = [
    "command", "dac", "address", "clocks", "data_phases", "wait_clks", "devsel_clks", "termination", "initiator",
    "fast_back_to_back", "address_parity_ok", "perr", "serr",
]  # fmt: skip
CAPTURED_BLUE = oracle.ALL_LINES - {"AD_HIGH", "C/BE_HIGH#", "REQ64#", "ACK64#"}


def pulled_up(value: str) -> oracle.Level:
    """A control line's level: an undriven one is pulled up."""
    return {"0": 0, "1": 1, "z": 1}.get(value)


def number(value: str) -> int | None:
    """The number on a vector; None where any bit is not driven or unknown."""
    return int(value, 2) if set(value) <= {"0", "1"} else None


def blue_clock(values: dict[str, str]) -> oracle.Clock:
    """One clock of a blue* trace."""
    return oracle.Clock(
        frame=pulled_up(values["FRAME"]),
        irdy=pulled_up(values["IRDY"]),
        trdy=pulled_up(values["TRDY"]),
        stop=pulled_up(values["STOP"]),
        devsel=pulled_up(values["DEVSEL"]),
        ad=number(values["AD"]),
        cbe=number(values["CBE"]),
        par=number(values["PAR"]),
        perr=pulled_up(values["PERR"]),
        serr=pulled_up(values["SERR"]),
        gnt=tuple(pulled_up(bit) for bit in reversed(values["GNT"])),
        rst=pulled_up(values["RST"]),
    )


@pytest.mark.parametrize("name", truth.BLUE)
def test_vcd_transactions_equal_truth(name: str) -> None:
    folder = shared_dir() / "traces" / name
    times, clocks = [], []
    for time, values in slow_vcd.edges(folder / "bus.vcd.gz", "CLK"):
        times.append(time)
        clocks.append(blue_clock(values))
    decoded = oracle.decode(clocks, CAPTURED_BLUE, grants=[f"GNT{n}#" for n in range(5)])

    wanted = truth.transactions(folder)
    got = [{"start_ps": times[row["start_clk"]], **{k: row[k] for k in COLUMNS}} for row in decoded.transactions]
    assert got == [{k: row[k] for k in ("start_ps", *COLUMNS)} for row in wanted]

    beats = [(times[p["clk"]], p["data"], p["byte_enables"], p["parity_ok"]) for p in decoded.data_phases]
    assert beats == [beat for row in wanted for beat in row["beats"]]
    assert decoded.illegal == []
    assert len(decoded.classes) == len(clocks)


@pytest.mark.parametrize(
    ("name", "rate"),
    [(name, rate) for name in truth.BLUE for rate in ((100, 250) if name.startswith("blue33") else (250, 500))],
)
def test_sampled_transactions_equal_truth(name: str, rate: int) -> None:
    folder = shared_dir() / "traces" / name
    clocks = sampled_clocks(folder / f"ctl_{rate}MSs.sr")
    captured = oracle.CONTROL | {"C/BE#", "PERR#", "SERR#", "GNT#"}
    decoded = oracle.decode(clocks, captured, grants=[f"GNT{n}#" for n in range(4)])

    wanted = truth.sampled_transactions(folder)
    columns = [c for c in COLUMNS if c not in ("address", "address_parity_ok")]
    got = [{k: row[k] for k in columns} for row in decoded.transactions]
    assert got == [{k: row[k] for k in columns} for row in wanted]
    offsets = {a["start_clk"] - b["start_clk"] for a, b in zip(decoded.transactions, wanted, strict=True)}
    assert len(offsets) == 1
    assert [p["byte_enables"] for p in decoded.data_phases] == [beat[2] for row in wanted for beat in row["beats"]]


def sampled_clocks(path: Path) -> list[oracle.Clock]:
    """Clocks of a blue* logic-analyser capture: at each rise of CLK, the last sample in which CLK was low."""
    with zipfile.ZipFile(path) as archive:
        data = archive.read("logic-1-1")
    samples = [data[k] | data[k + 1] << 8 for k in range(0, len(data), 2)]
    clocks = []
    for before, now in itertools.pairwise(samples):
        if before & 1 == 0 and now & 1 == 1:
            bit = [before >> k & 1 for k in range(16)]
            clocks.append(
                oracle.Clock(
                    frame=bit[1], irdy=bit[2], trdy=bit[3], devsel=bit[4], stop=bit[5], gnt=tuple(bit[6:10]),
                    cbe=before >> 10 & 15, perr=bit[14], serr=bit[15],
                )
            )  # fmt: skip
    return clocks
