"""Constants as other programs take them: an INET ``.ini``, and the parameters of the SimPy bench."""

from __future__ import annotations

from pcitrace.network.constants import Constants

__all__ = ["INET_KEYS", "inet_ini", "simpy_parameters"]

INET_KEYS = {
    "**.eth[*].bitrate": "link_mbit_s",
    "**.switch.bridging.directionReverser.delay": "switch_us",
    "**.switch.eth[*].queue.packetCapacity": "buffer_frames",
    "**.switch.eth[*].queue.dataCapacity": "buffer_bytes",
    "**.host*.app[*].source.processingDelay": "hosts_us",
}
"""Keys that are written, and the constant behind each. OMNeT++ is not run here: a test checks the keys and the units
only."""

UNITS = {"link_mbit_s": "Mbps", "switch_us": "us", "hosts_us": "us", "buffer_bytes": "B", "buffer_frames": ""}

SERIAL_BYTES = 26
"""Preamble, header and check sequence: what T_s has of the second way over a wire at 0 user bytes."""


def inet_ini(constants: Constants) -> str:
    """Return an ini file for OMNeT++ with INET 4; constants that are not known are comments with the reason."""
    lines = ["# Constants measured by pcitrace; what is not known is a comment.", "[General]"]
    for key, name in INET_KEYS.items():
        one = constants.values[name]
        value = constants.known(name)
        if value is None:
            lines.append(f"# {key}: {one.source}")
            continue
        if name == "switch_us":
            value = max(0.0, value - SERIAL_BYTES * _rate(constants))
        shown = f"{value:.0f}" if name == "buffer_frames" else f"{value:.6g}"
        lines.append(f"{key} = {shown}{UNITS[name]}  # +- {one.sigma or 0:.2g}; {one.source}")
    return "\n".join(lines) + "\n"


def simpy_parameters(constants: Constants) -> dict[str, float | None]:
    """Return the parameters of :class:`pcitrace.network.constants.bench.Bench`.

    The hosts' part of the direct line, without the wire, is shared evenly between sending and receiving; the switch's
    without the second way over a wire, which a bench takes anyway.
    """
    rate = _rate(constants)
    hosts = constants["hosts_us"] - SERIAL_BYTES * rate
    hosts_slope = constants["hosts_us_per_byte"] - rate
    parameters: dict[str, float | None] = {
        "rate_us_per_byte": rate,
        "send_us": hosts / 2,
        "receive_us": hosts / 2,
        "send_us_per_byte": hosts_slope / 2,
        "receive_us_per_byte": hosts_slope / 2,
        "jitter_us": (constants.known("jitter_us") or 0.0) / 2,
        "switch_us": None,
    }
    if constants.known("switch_us") is not None:
        parameters |= {
            "switch_us": constants["switch_us"] - SERIAL_BYTES * rate,
            "switch_us_per_byte": constants["switch_us_per_byte"] - rate,
            "cell_bytes": constants.known("switch_step_bytes"),
            "cell_us": constants.known("switch_step_us"),
            "buffer_frames": constants.known("buffer_frames"),
            "buffer_bytes": constants.known("buffer_bytes"),
        }
    return parameters


def _rate(constants: Constants) -> float:
    """Return the wire's us/byte; 1 Gbit/s where no run says."""
    return 8 / (constants.known("link_mbit_s") or 1000.0)
