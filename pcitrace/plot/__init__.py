"""Figures. Each takes a run first and ``ax=``, returns its Axes, and says where the run is simulated.

As in figure 3.1 of the ATLAS note (Hughes-Jones and Saka, 2000): one colour where data moves by DMA, another for all
that happens on the bus, control accesses included. No colour stands alone: a lane, a height or a text says the same.
"""

from pcitrace.plot.bus import exchange, lanes, timeline
from pcitrace.plot.instrument import bursts, delayed, held_up, latency, shares, terminations, waits
from pcitrace.plot.numbers import budget, histogram, line, occupancy
from pcitrace.plot.waveform import waveform

__all__ = [
    "budget",
    "bursts",
    "delayed",
    "exchange",
    "held_up",
    "histogram",
    "lanes",
    "latency",
    "line",
    "occupancy",
    "shares",
    "terminations",
    "timeline",
    "waits",
    "waveform",
]
