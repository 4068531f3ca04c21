"""Figures. Each takes a run first and ``ax=``, returns its Axes, and says where the run is simulated.

Colours follow figure 3.1 of the ATLAS note (Hughes-Jones and Saka, 2000): red where data moves by DMA, green for all
that happens on the bus, control accesses included.
"""

from pcitrace.plot.bus import exchange, lanes, timeline
from pcitrace.plot.numbers import budget, histogram, line, occupancy

__all__ = ["budget", "exchange", "histogram", "lanes", "line", "occupancy", "timeline"]
