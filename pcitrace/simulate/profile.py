"""The NIC profile of a bench whose NIC is no product: what its data sheet would say."""

from __future__ import annotations

from typing import Any

from pcitrace.simulate.config import HostParameters


def nic_profile(host: HostParameters, name: str) -> dict[str, Any]:
    """Describe the NIC of a host as a NIC profile (see docs/nic-profiles.md)."""
    nic, driver = host.nic, host.driver
    roles: dict[str, tuple[int, str | None]] = {}
    for accesses, role in (
        (driver.sent_update, "send_update"),
        (driver.receive, "interrupt"),
        (driver.queue_update, "receive_doorbell"),
        (driver.send[:-1], None),
        (driver.send[-1:], "send_doorbell"),
    ):
        roles |= {access.register: (access.offset, role) for access in accesses}
    dma: dict[str, Any] = {
        "send": "store_and_forward" if nic.cut_through_send_bytes is None else "cut_through",
        "receive": "store_and_forward" if nic.cut_through_receive_bytes is None else "cut_through",
        "receive_fcs": nic.receive_fcs,
    }
    if nic.burst_limit_bytes is not None and nic.send_burst_limit_bytes is not None:
        # The two directions may differ; the profile's limit is the card's.
        dma["burst_limit_bytes"] = max(nic.burst_limit_bytes, nic.send_burst_limit_bytes)
    descriptors: dict[str, Any] = {"place": "host_memory" if nic.descriptor_bytes else "card"}
    if nic.descriptor_bytes:
        descriptors["send"] = {
            "size_bytes": nic.descriptor_bytes,
            "fetch_max": nic.descriptors_per_fetch,
            "address_offset": nic.descriptor_address_offset,
        }
    if nic.status_bytes and (nic.send_status or nic.receive_status):
        descriptors["status_bytes"] = [nic.status_bytes]
    return {
        "format": 1,
        "name": name,
        "title": "the NIC of a simulated bench",
        "sources": ["written by pcitrace simulate"],
        "device": {"vendor_id": nic.device_id & 0xFFFF, "device_ids": [nic.device_id >> 16]},
        "dma": dma,
        "descriptors": descriptors,
        "windows": [{"name": "registers", "bar": 0, "base": nic.base_address, "size_bytes": nic.register_bytes}],
        "registers": [
            {"name": register, "offset": offset} | ({"role": role} if role else {})
            for register, (offset, role) in roles.items()
        ],
    }
