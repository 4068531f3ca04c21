"""What a simulated bench is made of. Every field can be set by its dotted name, e.g. ``host.nic.burst_limit_bytes``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pcitrace.simulate.values import check_numbers, plain, require, set_value

MAXIMUM_USER_BYTES = 1500


@dataclass(frozen=True)
class BusParameters:
    """A PCI bus, its memory target and its arbiter."""

    clock_mhz: float = 33.333
    width: int = 32
    phase_ns: float = 7.0  # the first rise of CLK after the capture's start
    memory_devsel_clks: int = 2
    memory_read_first_clks: int = 6  # address phase to the first TRDY#
    memory_write_first_clks: int = 2
    wait_probability: float = 0.0  # per data phase after the first, by the memory
    wait_clks: tuple[int, int] = (1, 3)
    initiator_wait_probability: float = 0.0
    retry_probability: float = 0.0  # per transaction of the NIC
    disconnect_probability: float = 0.0  # per data phase of the NIC
    disconnect_boundary_bytes: int | None = 4096
    latency_timer_clks: int | None = None  # None: long enough for any burst
    park: str = "last"  # GNT# of an idle bus: last | host | none
    tval_ns: float = 6.0  # outputs change so long after the rise of CLK
    clock_jitter_ns: float = 0.0


@dataclass(frozen=True)
class Access:
    """One CSR access of the driver: a register of the NIC, read or written."""

    register: str
    offset: int
    write: bool = True


@dataclass(frozen=True)
class NicParameters:
    """A NIC: where its registers are, how it moves data, how long a frame takes inside it."""

    profile: str = "none"  # name of a NIC profile; none: no product, its profile goes into the run folder
    device_id: int = 0x1000_FEED  # device and vendor, as configuration space has them
    base_address: int = 0xE800_0000
    register_bytes: int = 0x1000
    csr_devsel_clks: int = 2
    csr_write_first_clks: int = 2
    csr_read_first_clks: int = 4
    csr_read_retries: tuple[int, int] = (0, 0)  # delayed reads: so many attempts are retried first
    bus_width: int = 32
    burst_limit_bytes: int | None = None
    send_burst_limit_bytes: int | None = None  # None: one burst
    piece_pause_us: float = 0.0  # end of a piece to the request for the next
    piece_pause_jitter_us: float = 0.0
    descriptor_bytes: int = 0  # 0: descriptors are written into the card by CSR accesses
    descriptors_per_fetch: int = 1
    descriptor_address_offset: int = 0
    descriptor_length_offset: int = 8
    descriptor_to_data_us: float = 0.2
    status_bytes: int = 0
    send_status: bool = False
    receive_status: bool = False
    status_us: float = 0.3
    send_start_us: float = 1.0  # doorbell to the first request for the bus
    send_interval_us: float = 0.0  # at least so long from one send DMA to the next
    send_transit_us: float = 2.0  # last data phase of the send to the frame's start on the wire
    receive_transit_us: float = 2.0  # end of the frame on the wire to the request for the bus
    receive_transit_us_per_byte: float = 0.0
    transit_jitter_us: float = 0.0  # uniform, both ways
    cut_through_send_bytes: int | None = None  # the wire starts after so many bytes; None: store and forward
    cut_through_receive_bytes: int | None = None
    send_fifo_bytes: int = 4096
    receive_fcs: bool = False


@dataclass(frozen=True)
class DriverParameters:
    """CPU and driver of a host."""

    call_us: float = 0.3  # the application's call to the first CSR access
    access_spacing_us: float = 0.18  # from one CSR access to the next
    send: tuple[Access, ...] = (Access("TX_PRODUCER", 0x10),)
    doorbell_value: int | None = None  # what the last of these writes; None: the index behind the last descriptor
    sent_update_us: float | None = 6.0  # send DMA's end to the sent queue's update
    sent_update: tuple[Access, ...] = (Access("TX_CONSUMER", 0x14),)
    blocking: bool = False  # the call returns after the sent queue's update
    ring_frames: int = 48  # the call waits while so many frames are in the NIC's hands
    receive_us: float = 5.0  # receive DMA's end to the CSR access
    receive: tuple[Access, ...] = (Access("INTERRUPT_STATUS", 0x20, write=False),)
    queue_update_us: float | None = 1.5  # that access to the receive queue's update
    queue_update: tuple[Access, ...] = (Access("RX_PRODUCER", 0x24),)
    deliver_us: float = 8.5  # receive DMA's end to the application
    deliver_us_per_byte: float = 0.0
    jitter_us: float = 0.0  # uniform, on each of these
    group_frames: int = 1  # sends are collected and given to the NIC in groups
    group_spread: int = 0
    group_frame_us: float = 1.6  # CSR writes of one frame of a group to those of the next
    group_hold_us: tuple[float, float] = (60.0, 80.0)  # last CSR write of a group to its first DMA
    group_long_hold_us: float = 0.0
    group_long_hold_probability: float = 0.0


@dataclass(frozen=True)
class HostParameters:
    """One computer."""

    bus: BusParameters = field(default_factory=BusParameters)
    nic: NicParameters = field(default_factory=NicParameters)
    driver: DriverParameters = field(default_factory=DriverParameters)


@dataclass(frozen=True)
class LinkParameters:
    """The Ethernet between the hosts, full duplex."""

    rate_mbit_s: float = 1000.0
    medium: str = "1000BASE-SX"
    preamble_bytes: int = 8
    gap_bytes: int = 12
    loss: float = 0.0  # probability that a frame is damaged on the wire


@dataclass(frozen=True)
class TestParameters:
    """The frames that are sent."""

    kind: str = "request-response"  # request-response | ping-pong | stream | bidirectional
    sizes: tuple[int, ...] = (64, 512, 1024, 1500)  # user bytes
    request_bytes: int = 64
    count: int = 100  # frames a sender, or loops
    spacing_us: float = 50.0
    arrivals: str = "regular"  # regular | poisson
    turnaround_us: float = 1.5  # reply received to the next request
    timeout_us: float = 500.0
    start_us: float = 20.0
    configure: bool = True  # configuration cycles first (in the NIC's BAR)


@dataclass(frozen=True)
class AnalyserParameters:
    """The logic analyser."""

    mode: str = "timing"  # timing | state (clocked by the bus: one capture a host)
    separate: bool = False  # timing mode: an analyser for each host, each with its own timebase
    rate_mhz: float = 100.0
    wires: str = "control16"  # control14 | control16 | command | full
    skew_ns: float = 0.0  # largest delay between probes
    jitter_ns: float = 0.0  # sigma, of every edge
    offset_us: float = 0.0  # of two captures: B's starts so long after A's
    offset_sigma_us: float = 0.0  # how well run.toml knows that
    drift_ppm: float = 0.0  # of two timebases: B's second is longer by so much
    drift_sigma_ppm: float = 0.0
    tail_us: float = 5.0  # captured after the last event
    duration_us: float | None = None  # None: until everything has happened


@dataclass(frozen=True)
class SweepParameters:
    """The latency sweep of the same bench, not captured: what Equation 2.1 is fitted to."""

    sizes: tuple[int, ...] = ()
    loops: int = 100
    noise_us: float = 0.5  # sigma of one round trip


@dataclass(frozen=True)
class Simulation:
    """A whole bench with its test."""

    name: str = "custom"
    title: str = "simulated bench"
    published: str = ""
    given: Mapping[str, float] = field(default_factory=dict)  # inputs, never results
    truth: str = "full"  # full | frames (no rows of transactions, data phases and CSR accesses: for long runs)
    a: HostParameters = field(default_factory=HostParameters)
    b: HostParameters = field(default_factory=HostParameters)
    link: LinkParameters = field(default_factory=LinkParameters)
    test: TestParameters = field(default_factory=TestParameters)
    analyser: AnalyserParameters = field(default_factory=AnalyserParameters)
    sweep: SweepParameters = field(default_factory=SweepParameters)

    def with_values(self, values: Mapping[str, Any]) -> Simulation:
        """Return a copy with fields changed, by dotted name; `host.` means both hosts.

        Raises
        ------
        SimulationError
            For a name that is not there or a value of the wrong type.
        """
        result = self
        for name, value in values.items():
            first, *rest = name.split(".")
            for path in [["a", *rest], ["b", *rest]] if first == "host" else [[first, *rest]]:
                result = set_value(result, path, value, name)
        result.check()
        return result

    def parameters(self) -> dict[str, Any]:
        """Return all fields that are not None as nested plain values."""
        parameters: dict[str, Any] = plain(self)
        return parameters

    def check(self) -> None:
        """Refuse what cannot be built.

        Raises
        ------
        SimulationError
        """
        check_numbers(self)
        for letter, host in (("a", self.a), ("b", self.b)):
            bus, nic, driver = host.bus, host.nic, host.driver
            require(bus.width in (32, 64), f"{letter}.bus.width", bus.width, "32 or 64")
            require(1 <= bus.clock_mhz <= 133, f"{letter}.bus.clock_mhz", bus.clock_mhz, "1 to 133")
            require(bus.park in ("last", "host", "none"), f"{letter}.bus.park", bus.park, "last, host or none")
            widths = (32, bus.width)
            require(nic.bus_width in widths, f"{letter}.nic.bus_width", nic.bus_width, "32, or the width of the bus")
            for part, name in ((bus, "bus.memory_devsel_clks"), (nic, "nic.csr_devsel_clks")):
                clks = getattr(part, name.partition(".")[2])
                require(1 <= clks <= 4, f"{letter}.{name}", clks, "1 (fast) to 4 (subtractive)")
            for name in ("burst_limit_bytes", "send_burst_limit_bytes"):
                limit = getattr(nic, name)
                require(limit is None or limit >= 8, f"{letter}.nic.{name}", limit, "none, or at least 8")
            for name in ("send", "sent_update", "receive", "queue_update"):
                require(bool(getattr(driver, name)), f"{letter}.driver.{name}", (), "one access at least")
            for name, least in (("group_frames", 1), ("ring_frames", 1)):
                require(getattr(driver, name) >= least, f"{letter}.driver.{name}", getattr(driver, name), "1 or more")
            spread = driver.group_spread
            require(spread < driver.group_frames, f"{letter}.driver.group_spread", spread, "below group_frames")
        test, link, analyser = self.test, self.link, self.analyser
        for name, value, allowed in (
            ("test.kind", test.kind, ("request-response", "ping-pong", "stream", "bidirectional")),
            ("test.arrivals", test.arrivals, ("regular", "poisson")),
            ("truth", self.truth, ("full", "frames")),
            ("analyser.mode", analyser.mode, ("timing", "state")),
            ("analyser.wires", analyser.wires, ("control14", "control16", "command", "full")),
        ):
            require(value in allowed, name, value, ", ".join(allowed))
        for name, sizes in (("test.sizes", test.sizes), ("test.request_bytes", (test.request_bytes,))):
            good = bool(sizes) and all(1 <= size <= MAXIMUM_USER_BYTES for size in sizes)
            require(good, name, sizes, f"1 to {MAXIMUM_USER_BYTES} user bytes each")
        for name, number in (("link.rate_mbit_s", link.rate_mbit_s), ("analyser.rate_mhz", analyser.rate_mhz)):
            require(number > 0, name, number, "above 0")
