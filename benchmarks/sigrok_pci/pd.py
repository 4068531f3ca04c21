"""What a protocol decoder in Python inside sigrok does: wait for an edge, look at the lines, annotate transactions.

It samples at the clock edge, as such decoders do, and so reads many rows wrong; only its speed is compared.
"""

from typing import ClassVar

import sigrokdecode as srd


class Decoder(srd.Decoder):
    """One annotation a transaction."""

    api_version = 3
    id = "sigrok_pci"
    name = "PCI"
    longname = "PCI (benchmark)"
    desc = "PCI control lines to transactions."
    license = "gplv2+"
    inputs: ClassVar = ["logic"]
    outputs: ClassVar = []
    tags: ClassVar = ["PC"]
    channels = tuple(
        {"id": name, "name": name.upper(), "desc": name} for name in ("clk", "frame", "irdy", "trdy", "devsel", "stop")
    )
    annotations = (("transaction", "Transaction"),)
    annotation_rows = (("transactions", "Transactions", (0,)),)

    def __init__(self):
        self.reset()

    def reset(self):
        """Nothing is kept between captures."""

    def start(self):
        """Say what comes out."""
        self.out = self.register(srd.OUTPUT_ANN)

    def decode(self):
        """Clock by clock."""
        start, phases, stopped = None, 0, False
        while True:
            _, frame, irdy, trdy, _, stop = self.wait({0: "r"})
            if start is None:
                if not frame:
                    start, phases, stopped = self.samplenum, 0, False
                continue
            if not irdy and not trdy:
                phases += 1
            stopped = stopped or (not irdy and not stop)
            if frame and irdy:
                text = f"{phases} {'stop' if stopped else 'done'}"
                self.put(start, self.samplenum, self.out, [0, [text]])
                start = None
