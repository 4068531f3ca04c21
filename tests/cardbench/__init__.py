"""Network cards on PCI buses, drawn at random: captures with their truth, to test the analysis with.

Simulated: no bus existed. It shares nothing with ``pcitrace.simulate`` and was written without looking at the
analysis; all it takes from pcitrace is the names of the columns. An idle clock costs no work.

::

    bench = Bench("ring", 3)             # what was drawn, and all that happened; same family and seed, same run
    tables(bench, "control16")["A"]      # transactions, data_phases and wire as the decoder gives them, without files
    bench.truth()                        # one dict a frame
    write(bench, folder)                 # bus.vcd.gz, control16.sr, run.toml, card.toml, truth.jsonl.gz ...
    score(bench, frames, "control16")    # right, null and wrong of a DataFrame of frames

``python -m cardbench FAMILY SEED -o FOLDER`` (in ``tests/``) writes a run folder. The families, and what each draws,
are the functions of :mod:`cardbench.cards`. Every family also draws: bus and registers timing (DEVSEL#, waits, retries,
delayed reads), descriptors, burst limit, status writes, doorbell, interrupts or polls, driver times, sizes, traffic
(request-response, ping-pong, streams that are regular, Poisson or back to back), losses, 100 or 1000 Mbit/s, the
crystals of both hosts and of the analyser, whether configuration is in the capture.

Truth: times are those of the capture, in ns, negative before it begins (such a frame is ``partial``). A frame's DMA is
everything that the card read or wrote for it: words read twice, and words read beyond its end, are part of it.
``csr_first_ns`` are all attempts of all accesses of a send, ``csr_last_ns`` those of all doorbells that could have
started it: its own, and later ones before its DMA.
"""

from __future__ import annotations

from pathlib import Path

from .bench import Bench
from .cards import FAMILIES
from .files import write
from .score import Score, score
from .tables import tables

__all__ = ["FAMILIES", "Bench", "Score", "generate", "score", "tables", "write"]


def generate(family: str, seed: int, folder: str | Path, vcd: bool = True, control14: bool = False) -> Bench:
    """Draw a run and write its folder.

    Parameters
    ----------
    family : str
        One of `FAMILIES`.
    seed : int
    folder : str or path
    vcd : bool
        Whether to write ``bus.vcd.gz``, which takes longest.
    control14 : bool
        Whether to write ``control14.sr`` too: control lines without the wires.

    Returns
    -------
    Bench
    """
    bench = Bench(family, seed)
    write(bench, Path(folder), vcd, control14)
    return bench
