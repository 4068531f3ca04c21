"""
PCI, the parallel bus of 32 or 64 bits, in two ways.

With the option "file", the annotations that pcitrace wrote beside the capture
(pcitrace export CAPTURE --to sigrok -o x.sr): exactly its rows, at once.

Without it this decoder reads the lines by itself: the values that were there
before each rising edge of CLK. That takes far longer, and it knows
transactions, data and illegal sequences only.
"""

from .pd import Decoder
