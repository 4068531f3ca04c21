"""The published measurements as benches.

What a preset puts in (`given`) was published; a run that gives it back shows that the analysis is right, not that the
figure is. A: Hughes-Jones and Saka, ATLAS note, 2000 (Alteon ACEnic). B: Hughes-Jones, UDPmon slides (SysKonnect
SK-9843, Intel Pro/1000). User bytes of a UDP frame are the UDP data + 28.
"""

from __future__ import annotations

from pcitrace.simulate.config import (
    Access,
    AnalyserParameters,
    BusParameters,
    DriverParameters,
    HostParameters,
    NicParameters,
    Simulation,
    SweepParameters,
    TestParameters,
)

UDP_1400 = 1400 + 28

# --- Alteon ACEnic in 32-bit 33 MHz slots. A send descriptor is written into the card through its window.

ACENIC_BUS = BusParameters(clock_mhz=33.0, memory_read_first_clks=6, memory_write_first_clks=2)
ACENIC_NIC = NicParameters(
    profile="acenic",
    device_id=0x0001_12AE,
    base_address=0xE800_0000,
    register_bytes=0x4000,
    burst_limit_bytes=380,
    piece_pause_us=0.02,
    piece_pause_jitter_us=0.106,
    send_start_us=4.65,
    send_transit_us=4.30,
    receive_transit_us=4.225,
    receive_transit_us_per_byte=-0.000218,  # the gap's slope is below the wire's
    transit_jitter_us=0.05,
)
ACENIC_DRIVER = DriverParameters(
    call_us=0.3,
    access_spacing_us=0.09,
    send=(
        Access("WinBase", 0x068),
        Access("Window0", 0x800),
        Access("Window1", 0x804),
        Access("Window2", 0x808),
        Access("Window3", 0x80C),
        Access("TxPrd", 0x514),
    ),
    sent_update_us=5.9,
    sent_update=(Access("EvtCsm", 0x628),),
    blocking=True,
    receive_us=5.13,
    receive=(Access("Mb0Lo", 0x504),),
    queue_update_us=6.5,
    queue_update=(Access("RxStdPrd", 0x51C),),
    deliver_us=11.02,
    deliver_us_per_byte=0.00023,  # what the published slope leaves beside wire and PCI
    jitter_us=0.03,
)
ACENIC = Simulation(
    a=HostParameters(ACENIC_BUS, ACENIC_NIC, ACENIC_DRIVER),
    b=HostParameters(ACENIC_BUS, ACENIC_NIC, ACENIC_DRIVER),
    analyser=AnalyserParameters(rate_mhz=100.0, wires="control16", skew_ns=1.0, jitter_ns=0.2),
).with_values({"b.bus.phase_ns": 19.0})


def _stream(size: int, spacing_us: float, count: int) -> dict[str, object]:
    """An ACEnic streaming test: the call does not wait for the frame to be sent."""
    return {
        "test.kind": "stream",
        "test.sizes": (size,),
        "test.spacing_us": spacing_us,
        "test.count": count,
        "host.driver.blocking": False,
        "sweep.sizes": (),
    }


FIGURE_3_1 = ACENIC.with_values(
    {
        "name": "acenic-fig3.1",
        "title": "Figure 3.1: request-response, Alteon ACEnic, 33 MHz 32-bit PCI",
        "published": (
            "gap 9.4 us at 64 bytes and 20.56 at 1500, t_nic 4.34 / 4.18; R_PCI 0.00758 sending, 0.00792 receiving; "
            "CSR writes ~1 us, DMA 5 us later, update 6 us after; receive: CSR after 5.3 us, queue 6.6 us later; "
            "90.9 us between requests; T = 26.32 + 0.0235 b, t_sw 8.70"
        ),
        "given": {
            "gap_us_at_64": 9.4,
            "gap_us_at_1500": 20.56,
            "R_PCI_send_us_per_byte": 0.00758,
            "R_PCI_recv_us_per_byte": 0.00792,
            "t_sw_us": 8.70,
            "clock_mhz": 33.0,
            "burst_limit_bytes": 380,
        },
        "test.kind": "request-response",
        "test.sizes": (64, 128, 256, 384, 512, 768, 1024, 1280, 1500),
        "test.count": 225,
        "test.turnaround_us": 1.3,
        "sweep.sizes": (64, 128, 256, 384, 512, 640, 768, 896, 1024, 1152, 1280, 1408, 1500),
        "sweep.loops": 40,
        "sweep.noise_us": 0.5,
    }
)
FIGURE_4_2A = ACENIC.with_values(
    {
        "name": "acenic-fig4.2a",
        "title": "Figure 4.2a: streaming 1500 bytes at a nominal 22 us, Alteon ACEnic",
        "published": "CSR writes then DMA, 22.4 us apart, regular",
        "given": {"spacing_us": 22.4, "nominal_spacing_us": 22.0},
        **_stream(1500, 22.4, 400),
    }
)
FIGURE_4_2B = ACENIC.with_values(
    {
        "name": "acenic-fig4.2b",
        "title": "Figure 4.2b: streaming 1500 bytes at 20 us, too fast for the Alteon ACEnic",
        "published": "~40 us of rapid CSR writes, 60-80 us without activity, then the DMAs: ~25 frames a group",
        "given": {
            "spacing_us": 20.0,
            "group_frames": 25,
            "group_csr_us": 40.0,
            "idle_us_from": 60.0,
            "idle_us_to": 80.0,
        },
        **_stream(1500, 20.0, 500),
        "host.driver.group_frames": 25,
        "host.driver.group_spread": 2,
        "host.driver.group_frame_us": 1.6,
        "host.driver.group_hold_us": (60.0, 80.0),
        "host.nic.send_start_us": 0.0,
        "host.nic.send_interval_us": 13.6,
    }
)
FIGURE_4_2C = ACENIC.with_values(
    {
        "name": "acenic-fig4.2c",
        "title": "Figure 4.2c: streaming 1000 bytes at a nominal 21 us, Alteon ACEnic",
        "published": "20.56 us apart, regular",
        "given": {"spacing_us": 20.56, "nominal_spacing_us": 21.0},
        **_stream(1000, 20.56, 400),
    }
)
FIGURE_4_2D = FIGURE_4_2B.with_values(
    {
        "name": "acenic-fig4.2d",
        "title": "Figure 4.2d: streaming 1000 bytes at 20 us, too fast for the Alteon ACEnic",
        "published": "groups: CSR writes ~40 us, idle ~80 us, now and then ~635 us, CSR updates among the data",
        "given": {"spacing_us": 20.0, "group_frames": 25, "group_csr_us": 40.0, "idle_us": 80.0, "long_idle_us": 635.0},
        "test.sizes": (1000,),
        "host.driver.group_hold_us": (76.0, 84.0),
        "host.driver.group_long_hold_us": 635.0,
        "host.driver.group_long_hold_probability": 0.1,
    }
)

# --- 64-bit 66 MHz slots: descriptors and status in host memory.

FAST_BUS = BusParameters(
    clock_mhz=66.0, width=64, tval_ns=4.0, memory_read_first_clks=14, memory_write_first_clks=3, park="last"
)
SK9843_NIC = NicParameters(
    profile="sk9843",
    device_id=0x4300_1148,
    base_address=0xF000_0000,
    register_bytes=0x4000,
    bus_width=64,
    burst_limit_bytes=56,
    send_burst_limit_bytes=96,
    piece_pause_us=0.14,
    descriptor_bytes=32,
    descriptor_address_offset=8,
    descriptor_length_offset=0,
    status_bytes=16,
    receive_status=True,
    send_status=True,
    send_start_us=1.2,
    send_transit_us=1.0,
    receive_transit_us=1.0,
    transit_jitter_us=0.05,
    send_fifo_bytes=3200,
)
SK9843_DRIVER = DriverParameters(
    send=(Access("XA1_CSR", 0x6B4),),
    doorbell_value=0x10,  # START
    sent_update_us=5.0,
    sent_update=(Access("B0_ISRC", 0x008, write=False),),
    receive_us=4.0,
    receive=(Access("B0_ISRC", 0x008, write=False),),
    queue_update_us=1.5,
    queue_update=(Access("R1_CSR", 0x434),),
    deliver_us=8.0,
    ring_frames=16,
    jitter_us=0.05,
)
SLIDES_ANALYSER = AnalyserParameters(rate_mhz=250.0, wires="control16", skew_ns=0.5, jitter_ns=0.2)


def _slide(nic: NicParameters, driver: DriverParameters, values: dict[str, object]) -> Simulation:
    host = HostParameters(FAST_BUS, nic, driver)
    test = TestParameters(kind="stream", sizes=(UDP_1400,))
    bench = Simulation(a=host, b=host, test=test, analyser=SLIDES_ANALYSER, sweep=SweepParameters())
    return bench.with_values({"b.bus.phase_ns": 11.0, **values})


SK9843_100US = _slide(
    SK9843_NIC,
    SK9843_DRIVER,
    {
        "name": "sk9843-100us",
        "title": "SysKonnect SK-9843, 64-bit 66 MHz PCI: 1400-byte UDP frames, one every 100 us",
        "published": "~8 us of PCI for send or receive, 11.6 us on the wire",
        "given": {"spacing_us": 100.0, "pci_us": 8.0},
        "test.spacing_us": 100.0,
        "test.count": 100,
    },
)
SK9843_10US = SK9843_100US.with_values(
    {
        "name": "sk9843-10us",
        "title": "SysKonnect SK-9843, 64-bit 66 MHz PCI: 1400-byte UDP frames as fast as the line takes them",
        "published": "asked for one every 10 us; back to back at line rate (11.73 us)",
        "given": {"spacing_us": 10.0, "pci_us": 8.0},
        "test.spacing_us": 10.0,
        "test.count": 300,
    }
)
PRO1000_NIC = NicParameters(
    profile="i8254x",
    device_id=0x1008_8086,
    base_address=0xF100_0000,
    register_bytes=0x20000,
    bus_width=64,
    burst_limit_bytes=1024,
    send_burst_limit_bytes=512,
    descriptor_bytes=16,
    status_bytes=16,
    receive_status=True,
    send_start_us=0.5,
    send_transit_us=0.6,
    receive_transit_us=0.6,
    transit_jitter_us=0.05,
    send_fifo_bytes=48 << 10,
)
PRO1000_DRIVER = DriverParameters(
    send=(Access("TDT", 0x3818),),
    sent_update_us=3.0,
    sent_update=(Access("ICR", 0x00C0, write=False),),
    receive_us=3.0,
    receive=(Access("ICR", 0x00C0, write=False),),
    queue_update_us=1.0,
    queue_update=(Access("RDT", 0x2818),),
    deliver_us=6.0,
    jitter_us=0.02,
)
PRO1000_370DLE = _slide(
    PRO1000_NIC,
    PRO1000_DRIVER,
    {
        "name": "pro1000-370dle-11us",
        "title": "Intel Pro/1000 in a 370DLE, 64-bit 66 MHz PCI: 1400-byte UDP frames, one every 11 us",
        "published": (
            "4.7 us of the sending bus a frame, 43-45 % busy; 3.25 us for receive data; markers 11.06 + 10.86 us "
            "(faster than the line: the card's memory takes the difference, so the run is short)"
        ),
        "given": {"spacing_us": 10.86, "send_busy_us": 4.7, "receive_data_us": 3.25},
        "test.spacing_us": 10.86,
        "test.count": 200,
        "host.bus.wait_clks": (1, 1),
        "a.bus.wait_probability": 0.36,
        "b.bus.wait_probability": 0.17,
    },
)
PRO1000_P4DP6 = PRO1000_370DLE.with_values(
    {
        "name": "pro1000-p4dp6-8us",
        "title": "Intel Pro/1000 in a P4DP6, 64-bit 66 MHz PCI: 1400-byte UDP frames, one every 8 us",
        "published": (
            "5.14 us of the sending bus in 7.615 us, 67-68 % busy (faster than the line, so the run is short); "
            "2 us for receive data, which 64 bits at 66 MHz cannot do with 1442 bytes: it takes the least, 2.8"
        ),
        "given": {"spacing_us": 7.615, "send_busy_us": 5.14},
        "test.spacing_us": 7.615,
        "test.count": 70,
        "a.bus.wait_probability": 0.516,
        "b.bus.wait_probability": 0.0,
    }
)

PRESETS: dict[str, Simulation] = {
    preset.name: preset
    for preset in (
        FIGURE_3_1, FIGURE_4_2A, FIGURE_4_2B, FIGURE_4_2C, FIGURE_4_2D, SK9843_100US, SK9843_10US, PRO1000_370DLE,
        PRO1000_P4DP6,
    )
}  # fmt: skip
"""The benches by name. Any other bench: change fields of one of these, or build a `Simulation`."""
