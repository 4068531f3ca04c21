"""Constants of IEEE 802.3 and PCI that the analysis works with, each with the section it comes from.

Ref: IEEE Std 802.3-2018; PCI Local Bus Specification, Revision 2.2.
"""

from __future__ import annotations

__all__ = [
    "ADDRESS_BYTES", "BYTES_PER_PHASE", "FCS_BYTES", "FRAME_US", "GAP_BYTES", "HEADER_BYTES", "LARGEST_LENGTH_FIELD",
    "LEAST_FRAME_BYTES", "LEAST_USER_BYTES", "PAGE_BYTES", "PREAMBLE_BYTES", "READS", "WRITES",
]  # fmt: skip

# --- IEEE 802.3-2018

PREAMBLE_BYTES = 8
"""Preamble and start frame delimiter: 7 + 1 bytes. 3.2.1, 3.2.2."""

ADDRESS_BYTES = 12
"""Destination and source. 3.2.3."""

HEADER_BYTES = 14
"""Destination, source (6 bytes each) and length/type (2 bytes). 3.2.3, 3.2.6."""

FCS_BYTES = 4
"""Frame check sequence. 3.2.9."""

LEAST_USER_BYTES = 46
"""User bytes of the shortest frame; a frame with fewer is padded on the wire. 3.2.8: minFrameSize 64 - 14 - 4."""

LEAST_FRAME_BYTES = HEADER_BYTES + LEAST_USER_BYTES
"""Bytes of the shortest frame without its check sequence, as cards have it in memory."""

LARGEST_LENGTH_FIELD = 1500
"""Largest value of length/type that is a length; from 1536 on it is a type. 3.2.6."""

GAP_BYTES = 12
"""Gap between frames: interPacketGap, 96 bit times. 4.4.2."""

FRAME_US = (PREAMBLE_BYTES + LEAST_FRAME_BYTES + FCS_BYTES + GAP_BYTES) * 8 / 1000
"""The shortest frames follow each other no sooner, at 1 Gbit/s: 0.672 us."""

# --- PCI 2.2

BYTES_PER_PHASE = 4
"""Bytes of a data phase on a 32-bit bus; 8 on a 64-bit bus. 3.1, 3.8."""

PAGE_BYTES = 4096
"""The least window of memory that a device should take, whatever it needs; windows lie at multiples of their size.
6.2.5.1."""

READS = (0x0, 0x2, 0x6, 0xA, 0xC, 0xE)
"""Commands that read, so that the target drives the data: interrupt acknowledge, I/O, memory, configuration, memory
read multiple, memory read line. 3.1.1."""

WRITES = (0x3, 0x7, 0xB, 0xF)
"""Commands that write: I/O, memory, configuration, memory write and invalidate. 3.1.1."""
