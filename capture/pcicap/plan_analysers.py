"""``[[analysers]]`` of a plan."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pcicap.analysers.base import AnalyserSpec, Timeouts, Trigger, TriggerBy
from pcicap.errors import PlanError
from pcicap.fields import Fields
from pcicap.replay_server import Fault
from pcicap.trigger import parse_trigger

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_EXTERNAL_CLOCK = "external_clock"
"""Option by which libsigrok's drivers take an external clock."""


@dataclass(frozen=True)
class ReplayPlan:
    """An emulated analyser: the capture it serves, and how."""

    source: Path
    channels: tuple[str, ...]
    paced: bool
    fault: Fault


@dataclass(frozen=True)
class AnalyserPlan:
    """One analyser. With `replay`, its device, channels, rate and length are known once the replay runs."""

    spec: AnalyserSpec
    replay: ReplayPlan | None


def read_analyser(fields: Fields, index: int, folder: Path) -> AnalyserPlan:
    """One entry of ``[[analysers]]``.

    Raises
    ------
    PlanError
        Names the key, what was found and what to write.
    """
    name = fields.text("name", f"analyser{index}")
    if not _NAME.fullmatch(name):
        raise PlanError(fields.key("name"), f"{name!r} is no file name", "use letters, digits, - and _")
    replay = _replay(fields.table("replay"), folder) if fields.has("replay") else None
    if replay:
        for key in ("driver", "conn", "options", "config", "clock_mhz", "rate_hz", "channels"):
            if fields.has(key):
                raise PlanError(fields.key(key), "given beside replay", "leave it out: the replayed capture says it")
        driver, conn, channels, rate_hz, clock_mhz = "beaglelogic", "", {}, None, None
        options: dict[str, str] = {}
        config: dict[str, str] = {}
    else:
        driver = fields.text("driver")
        conn = fields.text("conn", "")
        options, config = fields.strings("options"), fields.strings("config")
        channels = _channels(fields)
        rate_hz, clock_mhz = _clocking(fields, config)
    spec = AnalyserSpec(
        name=name,
        driver=driver,
        conn=conn,
        options=options,
        config=config,
        channels=channels,
        rate_hz=rate_hz,
        clock_mhz=clock_mhz,
        samples=_length(fields, rate_hz or (round(clock_mhz * 1e6) if clock_mhz else None)),
        margin_s=fields.number("margin_ms", 10.0, positive=False) / 1e3,
        trigger=_trigger(fields, channels),
        timeouts=_timeouts(fields.table("timeouts")),
    )
    fields.end()
    return AnalyserPlan(spec, replay)


def _replay(fields: Fields, folder: Path) -> ReplayPlan:
    source = folder / fields.text("source")
    if not source.exists():
        raise PlanError(fields.key("source"), f"{source} does not exist", "give a .sr file or a run folder")
    replay = ReplayPlan(
        source,
        tuple(fields.texts("channels", [])),
        fields.flag("paced"),
        Fault(fields.choice("fault", [fault.value for fault in Fault], "none")),
    )
    fields.end()
    return replay


def _channels(fields: Fields) -> dict[str, str]:
    channels = fields.strings("channels")
    if not channels:
        raise PlanError(
            fields.key("channels"), "is missing", 'say which channel is which line, e.g. channels = { D0 = "A_CLK" }'
        )
    taken: dict[str, str] = {}
    for channel, line in channels.items():
        if re.search(r"[,=:\s]", channel + line) or not line:
            raise PlanError(f"{fields.key('channels')}.{channel}", f"is {line!r}", "use names without , = : and blanks")
        if line in taken:
            raise PlanError(
                f"{fields.key('channels')}.{channel}",
                f"{line} is already on {taken[line]}",
                "give every line one channel, with a prefix a host: A_CLK, B_CLK",
            )
        taken[line] = channel
    return channels


def _clocking(fields: Fields, config: dict[str, str]) -> tuple[int | None, float | None]:
    """Timing mode (rate) or state mode (clock of the bus)."""
    if fields.has("rate_hz") == fields.has("clock_mhz"):
        found = "both are given" if fields.has("rate_hz") else "neither is given"
        raise PlanError(
            f"{fields.key('rate_hz')} or clock_mhz",
            found,
            "rate_hz for the analyser's own clock, clock_mhz in state mode",
        )
    if fields.has("rate_hz"):
        return fields.integer("rate_hz", least=1), None
    if config.get(_EXTERNAL_CLOCK) not in ("on", "yes", "true"):
        raise PlanError(
            fields.key("clock_mhz"),
            "state mode, but the device would run on its own clock",
            f'add config = {{ {_EXTERNAL_CLOCK} = "on" }}, and clock_edge = "r" if the driver has it',
        )
    return None, fields.number("clock_mhz")


def _length(fields: Fields, rate_hz: int | None) -> int | None:
    if fields.has("samples") and fields.has("duration_ms"):
        raise PlanError(fields.key("duration_ms"), "given beside samples", "give one of them")
    if fields.has("samples"):
        return fields.integer("samples", least=1)
    if fields.has("duration_ms"):
        if rate_hz is None:
            raise PlanError(fields.key("duration_ms"), "given for a replay", "give samples, or nothing for all of it")
        return max(1, round(fields.number("duration_ms") * 1e-3 * rate_hz))
    return None


def _trigger(fields: Fields, channels: dict[str, str]) -> Trigger | None:
    if not fields.has("trigger"):
        return None
    table = fields.table("trigger")
    trigger = Trigger(
        table.text("condition"),
        table.integer("pre_samples", 0),
        TriggerBy(table.choice("by", [by.value for by in TriggerBy], "search")),
    )
    table.end()
    if channels:
        try:
            parse_trigger(trigger.condition, {line: bit for bit, line in enumerate(channels.values())})
        except ValueError as error:
            raise PlanError(table.key("condition"), str(error), 'write e.g. "A_FRAME#=f,A_IRDY#=1"') from None
    return trigger


def _timeouts(fields: Fields) -> Timeouts:
    default = Timeouts()
    timeouts = Timeouts(
        fields.number("first_data_s", default.first_data_s),
        fields.number("idle_s", default.idle_s),
        fields.number("total_s", default.total_s),
    )
    fields.end()
    return timeouts
