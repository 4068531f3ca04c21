"""Facts of the host that go into a run."""

from __future__ import annotations

import os

import pytest
from pcicap import hostfacts

INTERRUPTS = """\
            CPU0       CPU1
   8:          1          0   IO-APIC    8-edge      rtc0
  31:       7001          0   PCI-MSI 524289-edge      eth1-TxRx-0
  32:          0       8122   PCI-MSI 524290-edge      eth1-TxRx-1
  33:          5          5   PCI-MSI 524291-edge      eth10
 NMI:          0          0   Non-maskable interrupts
"""


def test_interrupts_of_the_card_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "/proc/interrupts": INTERRUPTS,
        "/proc/irq/31/smp_affinity_list": "0\n",
        "/proc/irq/32/smp_affinity_list": "2-3\n",
        "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
        "/sys/class/net/eth1/mtu": "1500\n",
    }
    monkeypatch.setattr(hostfacts, "_read", lambda path: files.get(str(path), ""))
    facts = hostfacts.host_facts("eth1")
    assert facts["interface"]["interrupt_affinity"] == {"31": "0", "32": "2-3"}
    assert facts["interface"]["mtu"] == 1500
    assert "speed" not in facts["interface"], "what cannot be read is left out"
    assert facts["governor"] == "performance"


def test_this_host() -> None:
    facts = hostfacts.host_facts("lo")
    assert facts["host"] == os.uname().nodename
    assert facts["kernel"].startswith(os.uname().release)
    assert facts["cpus"] == os.cpu_count()
    assert facts["interface"]["name"] == "lo"
    assert facts["interface"]["mtu"] > 0
    assert {"pcicap", "python", "kernel"} <= set(hostfacts.versions())
