"""A frame on its way, and what is written in it."""

from __future__ import annotations

from dataclasses import dataclass, field

from pcitrace.simulate.events import Signal

MAC = {"A": "02:50:43:49:00:0a", "B": "02:50:43:49:00:0b"}
HEADER_BYTES = 14
CRC_BYTES = 4
MINIMUM_USER_BYTES = 46
SEQUENCE = {"offset": 2, "bytes": 4, "byte_order": "big"}  # in the user bytes
_RAMP = bytes(range(256))


@dataclass(slots=True)
class Frame:
    """One frame and the time of everything that happened to it (ns, null where it did not)."""

    number: int
    sender: str
    receiver: str
    sequence: int
    length_bytes: int  # user bytes
    reply_to: Frame | None = None
    wanted_bytes: int = 0  # request: user bytes of the reply
    call_ns: float = 0.0
    csr_first_ns: float | None = None
    csr_last_ns: float | None = None
    csr_done_ns: float | None = None
    dma_start_ns: float | None = None
    dma_end_ns: float | None = None
    wire_start_ns: float | None = None
    wire_end_ns: float | None = None
    rx_dma_start_ns: float | None = None
    rx_dma_end_ns: float | None = None
    rx_csr_ns: float | None = None  # first CSR access on that bus after the receive DMA
    served_ns: float | None = None  # the CSR access that was made for this frame
    deliver_ns: float | None = None
    waited: bool = False  # for another frame: on the wire, in the receiving NIC, or on the receiving bus
    lost: bool = False
    on_card: bool = False  # enough of it for the wire
    held: Signal | None = None  # the NIC may start once the group is complete
    sent: Signal = field(default_factory=Signal)  # the send DMA is over
    done: Signal = field(default_factory=Signal)  # the reply (or the frame) arrived, or the wait for it ended

    @property
    def pci_bytes(self) -> int:
        """Bytes the sending NIC reads."""
        return self.length_bytes + HEADER_BYTES

    @property
    def wire_bytes(self) -> int:
        """Bytes from the header to the CRC, padded to the Ethernet minimum."""
        return max(self.length_bytes, MINIMUM_USER_BYTES) + HEADER_BYTES + CRC_BYTES

    def content(self, first: int, size: int) -> bytes:
        """Return part of the frame as it lies in memory: header, user bytes, then the receiver's CRC."""
        head = (
            bytes.fromhex(MAC[self.receiver].replace(":", ""))
            + bytes.fromhex(MAC[self.sender].replace(":", ""))
            + self.length_bytes.to_bytes(2, "big")
            + self.sender.encode()
            + b"\x01"
            + self.sequence.to_bytes(4, "big")
        )
        ramp = _RAMP * ((self.length_bytes + CRC_BYTES) // 256 + 1)
        return (head + ramp)[first : first + size].ljust(size, b"\0")
