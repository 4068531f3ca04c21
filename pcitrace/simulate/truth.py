"""The truth of a simulated run: every event as the bench logged it, in files that are written as it runs."""

from __future__ import annotations

import json
from array import array
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from struct import Struct
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from pcitrace.simulate.bus import Transaction
from pcitrace.simulate.config import Simulation
from pcitrace.simulate.frame import MINIMUM_USER_BYTES, Frame
from pcitrace.simulate.lines import phase_data
from pcitrace.simulate.pci import COMMAND_NAMES

US_PER_NS = 1e-3
KEEP_NS = 5e6  # a delivered frame may still get its last CSR accesses so long
COLUMNS = {
    "transactions": (
        "bus,transaction,start_us,end_us,start_clk,clocks,command,command_name,address,data_phases,bytes,wait_clks,"
        "target_wait_clks,initiator_wait_clks,devsel_clks,termination,initiator,first_data_us,last_data_us,purpose,frame"
    ),
    "data_phases": "bus,transaction,time_us,data,byte_enables",
    "bursts": ("bus,start_us,first_data_us,last_data_us,kind,direction,address,data_phases,bytes,pieces,frame"),
    "csr": ("bus,first_attempt_us,last_attempt_us,data_us,command_name,address,register,value,attempts,frame"),
    "frames": (
        "frame,sequence,sender,receiver,length_bytes,csr_first_us,csr_last_us,csr_done_us,dma_start_us,dma_end_us,"
        "wire_start_us,wire_end_us,rx_dma_start_us,rx_dma_end_us,rx_csr_us,t_nic_us,t_nic_tx_us,t_nic_rx_us,waited,lost,"
        "call_us,served_us,deliver_us"
    ),
}
"""Columns of the files ``truth/NAME.csv``; times in us on the run's axis, an empty field is null."""

_LOG_RECORD = Struct("<IHHIIqqi")  # pcitrace.runfolder.FRAME_LOG
_NOT_KNOWN_64, _NOT_KNOWN_32 = -(2**63), -(2**31)


def _us(time_ns: float | None) -> str:
    return "" if time_ns is None else f"{time_ns * US_PER_NS:.6f}"


class _Slope:
    """Least squares slope of duration against length."""

    def __init__(self) -> None:
        self.lengths = array("d")
        self.durations_us = array("d")

    def add(self, length: float, duration_us: float) -> None:
        self.lengths.append(length)
        self.durations_us.append(duration_us)

    def value(self) -> float | None:
        """Return the slope; None for fewer than two lengths."""
        x, y = np.array(self.lengths), np.array(self.durations_us)
        if len(x) < 2 or np.ptp(x) == 0:
            return None
        x = x - x.mean()
        return float(x @ (y - y.mean()) / (x @ x))


class Truth:
    """Takes every event of a bench, writes it to ``truth/`` and sums up the constants."""

    def __init__(self, folder: Path, simulation: Simulation) -> None:
        folder.mkdir()
        contents = simulation.analyser.wires == "full"
        self._folder = folder
        self._files: dict[str, TextIO] = {}
        for name, columns in COLUMNS.items():
            rows = simulation.truth == "full" and (contents or name != "data_phases")
            if rows or name in ("bursts", "frames"):
                self._files[name] = (folder / f"{name}.csv").open("w", encoding="utf-8", newline="")
                self._files[name].write(columns + "\n")
        self._byte_us = 8 / simulation.link.rate_mbit_s
        self._frames: deque[Frame] = deque()
        self._unserved: dict[str, list[Frame]] = {"A": [], "B": []}
        self._by_number: dict[int, Frame] = {}
        self.counts: dict[str, Counter[str]] = {"A": Counter(), "B": Counter()}
        self._send, self._receive = _Slope(), _Slope()
        self._pieces: dict[str, list[float]] = {"send": [0.0, 0, 0], "receive": [0.0, 0, 0]}
        self._t_nic = array("d")
        self._gap = _Slope()
        self._buses_and_software, self._pci_bytes = array("d"), array("d")
        self.frame_logs: dict[tuple[str, str], bytearray] = {}  # host, kind -> records

    def close(self) -> None:
        """Write the frames that are left and close the files."""
        while self._frames:
            self._retire(self._frames.popleft())
        for file in self._files.values():
            file.close()

    # --- what the bench reports

    def transaction(self, bus: str, done: Transaction) -> None:
        """Log a transaction."""
        request, plan = done.request, done.shape
        self.counts[bus]["transactions"] += 1
        self.counts[bus][done.termination] += 1
        if "transactions" not in self._files:
            return
        self._files["transactions"].write(
            f"{bus},{done.number},{done.start_ns * US_PER_NS:.6f},{done.end_ns * US_PER_NS:.6f},{done.start_clk},"
            f"{plan.clocks},{request.command},{COMMAND_NAMES[request.command]},{request.address},{len(plan.phase_ends)},"
            f"{done.moved_bytes},{plan.wait_clks},{plan.target_wait_clks},{plan.initiator_wait_clks},{plan.devsel_clks},"
            f"{done.termination},{request.agent},{_us(done.first_data_ns)},{_us(done.last_data_ns)},{request.purpose},"
            f"{'' if request.frame is None else request.frame}\n"
        )
        if "data_phases" in self._files:
            period_ns = (done.end_ns - done.start_ns) / max(1, plan.clocks - 1)
            for clk, data, enables in phase_data(done):
                time_ns = done.start_ns + (clk - done.start_clk) * period_ns
                self._files["data_phases"].write(f"{bus},{done.number},{_us(time_ns)},{data},{enables}\n")

    def burst(self, bus: str, kind: str, read: bool, address: int, pieces: list[Transaction], frame: int) -> None:
        """Log a logical DMA burst."""
        first, last = pieces[0], pieces[-1]
        phases = sum(len(piece.shape.phase_ends) for piece in pieces)
        size = sum(piece.moved_bytes for piece in pieces)
        self.counts[bus][kind] += 1
        self._files["bursts"].write(
            f"{bus},{_us(first.start_ns)},{_us(first.first_data_ns)},{_us(last.last_data_ns)},{kind},"
            f"{'read' if read else 'write'},{address},{phases},{size},{len(pieces)},{frame}\n"
        )
        if kind == "receive":
            self._unserved[bus].append(self._by_number[frame])
        if kind in self._pieces:
            sums = self._pieces[kind]
            for piece in pieces:
                moved = (len(piece.shape.phase_ends) - 1) * piece.phase_bytes
                if moved:
                    sums[0] += ((piece.last_data_ns or 0.0) - (piece.first_data_ns or 0.0)) * US_PER_NS
                    sums[1] += moved
                    sums[2] += 1

    def csr(self, bus: str, register: str, value: int, attempts: list[Transaction], frame: int | None) -> None:
        """Log a CSR access; it is the first after their receive DMA for the frames that wait for one."""
        first, last = attempts[0], attempts[-1]
        self.counts[bus]["csr"] += 1
        waiting = []
        for served in self._unserved[bus]:
            assert served.rx_dma_end_ns is not None
            if first.start_ns > served.rx_dma_end_ns:
                served.rx_csr_ns = first.start_ns
            else:  # its first attempt came before the last data: not an access after them
                waiting.append(served)
        self._unserved[bus] = waiting
        if "csr" not in self._files:
            return
        self._files["csr"].write(
            f"{bus},{_us(first.start_ns)},{_us(last.start_ns)},{_us(last.last_data_ns)},"
            f"{COMMAND_NAMES[last.request.command]},{last.request.address},{register},{value},{len(attempts)},"
            f"{'' if frame is None else frame}\n"
        )

    def frame(self, frame: Frame) -> None:
        """Take a new frame."""
        self._frames.append(frame)
        self._by_number[frame.number] = frame

    def settle(self, now_ns: float) -> None:
        """Write the frames to which nothing more happens."""
        while self._frames:
            frame = self._frames[0]
            end_ns = frame.wire_end_ns if frame.lost else frame.deliver_ns
            if end_ns is None or end_ns + KEEP_NS > now_ns:
                return
            self._retire(self._frames.popleft())

    def _retire(self, frame: Frame) -> None:
        del self._by_number[frame.number]
        wire_us = (max(frame.length_bytes, MINIMUM_USER_BYTES) + 26) * self._byte_us
        t_nic = t_tx = t_rx = None
        if frame.dma_end_ns is not None and frame.wire_start_ns is not None:
            t_tx = frame.wire_start_ns - frame.dma_end_ns
        if frame.rx_dma_start_ns is not None and frame.wire_end_ns is not None:
            t_rx = frame.rx_dma_start_ns - frame.wire_end_ns
            assert frame.dma_end_ns is not None
            gap_ns = frame.rx_dma_start_ns - frame.dma_end_ns
            t_nic = (gap_ns - wire_us * 1e3) / 2
        if frame.dma_start_ns is not None and frame.dma_end_ns is not None:
            self._send.add(frame.pci_bytes, (frame.dma_end_ns - frame.dma_start_ns) * US_PER_NS)
        if frame.rx_dma_start_ns is not None and frame.rx_dma_end_ns is not None and t_nic is not None:
            self._receive.add(frame.pci_bytes, (frame.rx_dma_end_ns - frame.rx_dma_start_ns) * US_PER_NS)
            if not frame.waited:
                self._t_nic.append(t_nic * US_PER_NS)
                self._gap.add(frame.length_bytes, gap_ns * US_PER_NS)
            if frame.deliver_ns is not None:
                self._buses_and_software.append((frame.deliver_ns - frame.call_ns - gap_ns) * US_PER_NS)
                self._pci_bytes.append(frame.pci_bytes)
        self._files["frames"].write(
            f"{frame.number},{frame.sequence},{frame.sender},{frame.receiver},{frame.length_bytes},"
            + ",".join(
                _us(time_ns)
                for time_ns in (
                    frame.csr_first_ns,
                    frame.csr_last_ns,
                    frame.csr_done_ns,
                    frame.dma_start_ns,
                    frame.dma_end_ns,
                    frame.wire_start_ns,
                    frame.wire_end_ns,
                    frame.rx_dma_start_ns,
                    frame.rx_dma_end_ns,
                    frame.rx_csr_ns,
                    t_nic,
                    t_tx,
                    t_rx,
                )
            )
            + f",{frame.waited},{frame.lost},{_us(frame.call_ns)},{_us(frame.served_ns)},{_us(frame.deliver_ns)}\n"
        )
        self._log_frame(frame.sender, "sent", frame, None)
        if frame.deliver_ns is not None:
            self._log_frame(frame.receiver, "received", frame, frame.deliver_ns)

    def _log_frame(self, host: str, kind: str, frame: Frame, receive_ns: float | None) -> None:
        """Add what the application of a host would have logged."""
        self.frame_logs.setdefault((host, kind), bytearray()).extend(
            _LOG_RECORD.pack(
                frame.sequence,
                0,
                "AB".index(frame.sender),
                frame.length_bytes,
                0,
                round(frame.call_ns),
                _NOT_KNOWN_64 if receive_ns is None else round(receive_ns),
                _NOT_KNOWN_32,
            )
        )

    # --- summing up

    def constants(self) -> dict[str, Any]:
        """Return the run's constants, each as it was in this run: realised, not what went in."""
        t_nic = np.array(self._t_nic)
        send, receive = self._send.value(), self._receive.value()
        # What Equation 2.1 leaves: a DMA takes R_PCI (b + 14), of which one data phase is before its first.
        t_sw = (np.array(self._buses_and_software) - (send or 0.0) * np.array(self._pci_bytes)) / 2
        t_sw -= (receive or 0.0) * np.array(self._pci_bytes) / 2
        gap_slope = self._gap.value()
        overlap = gap_slope is not None and gap_slope < self._byte_us / 2
        return {
            "t_nic_us": _mean(t_nic) | {"value": None if overlap or not len(t_nic) else float(t_nic.mean())},
            "gap_slope_us_per_byte": gap_slope,
            "R_PCI_send_us_per_byte": {"value": send, "n": len(self._send.lengths)},
            "R_PCI_recv_us_per_byte": {"value": receive, "n": len(self._receive.lengths)},
            "burst_rate_send_us_per_byte": _ratio(self._pieces["send"]),
            "burst_rate_recv_us_per_byte": _ratio(self._pieces["receive"]),
            "t_sw_us": _mean(t_sw if send is not None and receive is not None else t_sw[:0]),
        }


def _mean(values: npt.NDArray[np.float64]) -> dict[str, Any]:
    if not len(values):
        return {"value": None, "spread": None, "n": 0}
    return {"value": float(values.mean()), "spread": float(values.std()), "n": len(values)}


def _ratio(sums: Sequence[float]) -> dict[str, Any]:
    return {"value": sums[0] / sums[1] if sums[1] else None, "n": int(sums[2])}


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file that people can read."""
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
