"""Cards that exist, by their data sheets and drivers, on the buses and with the truth of cardbench.

Simulated: no bus existed, and what a data sheet leaves open is drawn. Written without looking at the analysis, and
without the cards of cardbench; its bus, traffic, files and score are used.

``python -m realcards DESIGN SEED`` (in ``tests/``) writes a run, compares what is decoded with the truth, analyses it
from AD, from 16 channels and from control lines alone, and says what is right, null and wrong.
"""

from __future__ import annotations

from .bench import RealBench
from .gigabit import E1000, R8169, Dp83820, Sk98, Tg3
from .hundred import Boomerang, Dp83815, Eepro100, PcNet, Rhine, Rtl8139, Tulip

DESIGNS = {
    design.__name__.lower(): design
    for design in (
        Rtl8139, Tulip, Eepro100, PcNet, Boomerang, Rhine, Dp83815, E1000, R8169, Dp83820, Sk98, Tg3,
    )
}  # fmt: skip

__all__ = ["DESIGNS", "RealBench"]
