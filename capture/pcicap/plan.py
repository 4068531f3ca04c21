"""A plan: which analysers record which lines of which hosts, while which frames are sent."""

from __future__ import annotations

import copy
import dataclasses
import difflib
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pcicap.analysers.base import AnalyserSpec
from pcicap.companions import CompanionPlan, check_names, read_companion
from pcicap.errors import PlanError, raise_all
from pcicap.fields import Fields
from pcicap.pausing import PausePlan, read_pause
from pcicap.plan_analysers import AnalyserPlan, read_analyser
from pcicap.plan_frames import FrameTest, check_host_address, is_ipv4, read_test
from pcicap.plan_path import read_path

_Part = TypeVar("_Part")
_Read = TypeVar("_Read")

NICS = ("acenic", "generic", "i8254x", "i82558", "sk9843")
"""NIC profiles that come with pcitrace (a test holds the two lists equal); any other is a file."""

_MINIMUM = ("CLK", "FRAME#", "IRDY#", "TRDY#")


@dataclass(frozen=True)
class HostPlan:
    """A host with its bus, or with its network interface, or both.

    Attributes
    ----------
    name : str
        As in run.toml, usually A or B.
    analyser : int or None
        Which analyser records its bus.
    bus : str
        Prefix of its lines; by default the host's name.
    clock_mhz : float or None
        Nominal PCI clock.
    width : int or None
        Bits of the bus.
    nic : str or Path or None
        NIC profile: one of `NICS`, or a file.
    interface : str or None
        Interface on *this* machine; the host that has one steers the test.
    mac : str or None
        On the other host: address of the interface where ``framegen serve`` runs.
    wiring : mapping
        PCI line -> channel, passed on to run.toml.
    """

    name: str
    analyser: int | None
    bus: str
    clock_mhz: float | None
    width: int | None
    nic: str | Path | None
    interface: str | None
    mac: str | None
    wiring: Mapping[str, Any]


@dataclass(frozen=True)
class Sweep:
    """One key of the plan that takes several values; a run folder each."""

    key: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Plan:
    """A checked plan.

    Attributes
    ----------
    text : str
        The file as it is, copied into the run folder.
    title : str
        Of the run; may be empty.
    analysers : tuple of AnalyserPlan
        None of them: frames only.
    hosts : tuple of HostPlan
        At least one.
    link : mapping
        ``[link]`` of run.toml; empty where the plan has none.
    path : mapping
        ``[path]`` of run.toml: what lies between the hosts; empty where the plan does not say.
    test : FrameTest or None
        None records without sending.
    companions : tuple of CompanionPlan
        Tests that are under way at the same time.
    pause : PausePlan or None
        PAUSE frames that are sent meanwhile.
    sweep : Sweep or None
        What varies.
    sync_line : str or None
        Line that every analyser records, from which their clocks are compared.
    warnings : tuple of str
        What will work but may not be what is wanted.
    """

    text: str
    title: str
    analysers: tuple[AnalyserPlan, ...]
    hosts: tuple[HostPlan, ...]
    link: Mapping[str, Any]
    path: Mapping[str, Any]
    test: FrameTest | None
    companions: tuple[CompanionPlan, ...]
    pause: PausePlan | None
    sweep: Sweep | None
    sync_line: str | None
    warnings: tuple[str, ...]

    @property
    def steering(self) -> HostPlan | None:
        """The host whose interface is on this machine."""
        return next((host for host in self.hosts if host.interface), None)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the hosts in the order of framegen's nodes: the one that steers, then its peers."""
        named = [host.name for host in self.hosts if host.mac]
        extra = [f"node{1 + len(named) + i}" for i in range(len(self.addresses) - len(named))]
        return (self.steering.name, *named, *extra) if self.steering else ()

    @property
    def peers(self) -> tuple[str, ...]:
        """Addresses of the hosts that take part in the test."""
        extra = self.test.extra_peers if self.test else ()
        return (*(host.mac for host in self.hosts if host.mac), *extra)

    @property
    def addresses(self) -> tuple[str, ...]:
        """Addresses of node 1, 2, ...: the peers, then the bystanders."""
        return (*self.peers, *(self.test.bystanders if self.test else ()))


def load(path: Path) -> Plan:
    """Read and check a plan.

    Raises
    ------
    PlanError
        Names the key, what was found and what to write.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise PlanError(str(path), f"cannot be read ({error.strerror})", "give the path of a plan") from None
    except UnicodeDecodeError:
        raise PlanError(str(path), "is not UTF-8 text", "give the path of a plan") from None
    plan = parse(text, path.parent)
    if plan.sweep:
        points(plan, path.parent)
    return plan


def interfaces_of(path: Path) -> dict[str, str]:
    """The interfaces of this machine that a plan names, by their keys, whatever else is wrong with it."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    hosts, beside = values.get("hosts"), values.get("companions")
    parts = [(f"hosts.{name}", one) for name, one in hosts.items()] if isinstance(hosts, dict) else []
    parts += [(f"companions[{index}]", one) for index, one in enumerate(beside)] if isinstance(beside, list) else []
    named = {f"{key}.interface": one["interface"] for key, one in parts if isinstance(one, dict) and "interface" in one}
    return {key: name for key, name in named.items() if isinstance(name, str)}


def parse(text: str, folder: Path) -> Plan:
    """Check a plan's text; paths in it are relative to `folder`."""
    return _check(_toml(text), text, folder)


def points(plan: Plan, folder: Path) -> list[tuple[Any, Plan]]:
    """Value and plan of every point of a sweep, each checked."""
    assert plan.sweep
    values = _toml(plan.text)
    del values["sweep"]
    out = []
    for value in plan.sweep.values:
        point = copy.deepcopy(values)
        _set(point, plan.sweep.key, value)
        out.append((value, _check(point, plan.text, folder)))
    return out


def _toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PlanError("plan", f"is not TOML ({error})", "correct that line") from None


def _set(values: dict[str, Any], key: str, value: Any) -> None:
    """Set ``test.spacing_us`` or ``analysers.0.rate_hz``; the key must be in the plan."""
    here: Any = values
    *path, last = key.split(".")
    try:
        for step in path:
            here = here[int(step)] if isinstance(here, list) else here[step]
        slot: Any = int(last) if isinstance(here, list) else last
        here[slot]  # a sweep replaces what the plan has: a misspelt key is found here
        here[slot] = value
    except (KeyError, IndexError, ValueError, TypeError):
        raise PlanError(
            "sweep.key",
            f"{key!r} is not in the plan",
            "name a key that is, e.g. test.spacing_us or analysers.0.rate_hz",
        ) from None


def _check(values: Mapping[str, Any], text: str, folder: Path) -> Plan:
    faults: list[PlanError] = []
    fields = Fields(values, faults=faults)
    if fields.integer("format", 0 if "format" in values else None, least=1) != 1 and not faults:
        # of another format nothing else can be said
        raise PlanError("format", f"is {values['format']}", "this pcicap reads format 1; install a newer one")
    title = fields.text("title", "")
    tables = enumerate(fields.tables("analysers"))
    analysers = _each(faults, tables, lambda one: read_analyser(one[1], one[0], folder))
    names = [analyser.spec.name for analyser in analysers]
    for index, name in enumerate(names):
        if name in names[:index]:
            fields.refuse(f"analysers[{index}].name", f"{name!r} is taken", "give every analyser a name of its own")
    hosts = _each(faults, fields.named_tables("hosts"), lambda one: _host(one[1], one[0], names, folder))
    link: dict[str, Any] = {}
    test = sweep = pause = sync_line = None
    with _section(faults):
        link = _link(fields.table("link")) if fields.has("link") else {}
    with _section(faults):
        test = read_test(fields.table("test"), folder) if fields.has("test") else None
    with _section(faults):
        sweep = _sweep(fields.table("sweep")) if fields.has("sweep") else None
    with _section(faults):
        pause = read_pause(fields.table("pause")) if fields.has("pause") else None
    path = read_path(fields.table("path")) if fields.has("path") else {}
    tables = enumerate(fields.tables("companions"))
    companions = tuple(_each(faults, tables, lambda one: read_companion(one[1], one[0], folder)))
    with _section(faults):
        sync_line = _sync_line(fields.table("sync"), tuple(analysers)) if fields.has("sync") else None
    fields.end()
    plan = Plan(text, title, tuple(analysers), tuple(hosts), link, path, test, companions, pause, sweep, sync_line, ())
    if not faults:
        with _section(faults):
            _check_ends(plan)
            check_names(companions)
            _check_pause(plan)
    if faults:
        raise_all(faults)
    warnings = [warning for host in hosts for warning in _check_bus(host, plan.analysers)]
    if len(analysers) > 1 and sync_line is None:
        warnings.append("several analysers and no [sync]: their times will be known to 0.1 s of each other")
    return dataclasses.replace(plan, warnings=tuple(warnings))


def _each(faults: list[PlanError], parts: Iterable[_Part], read: Callable[[_Part], _Read]) -> list[_Read]:
    """Read each of several parts of the plan; what one raises is collected, and the others are read all the same."""
    found = []
    for part in parts:
        with _section(faults):
            found.append(read(part))
    return found


@contextmanager
def _section(faults: list[PlanError]) -> Iterator[None]:
    """Collect what a part of the plan raises, unless it follows from what was collected there already."""
    before = len(faults)
    try:
        yield
    except PlanError as error:
        if len(faults) == before:
            faults.append(error)


def _host(fields: Fields, name: str, analysers: list[str], folder: Path) -> HostPlan:
    analyser = None
    if fields.has("analyser"):
        chosen = fields.choice("analyser", analysers)
        analyser = analysers.index(chosen) if chosen in analysers else None
    mac = check_host_address(fields, "mac", fields.text("mac")) if fields.has("mac") else None
    if fields.has("address"):
        if mac is not None:
            fields.refuse("address", "given beside mac", "give mac, or address where [test] has udp = true")
        mac = fields.text("address")
        if not is_ipv4(mac):
            fields.refuse("address", f"{mac!r} is no IPv4 address", "write one like 10.0.0.2")
    width = fields.integer("width") if fields.has("width") else None
    if width not in (None, 32, 64):
        fields.refuse("width", f"is {width}", "write 32 or 64")
    host = HostPlan(
        name=name,
        analyser=analyser if analyser is not None else (0 if len(analysers) == 1 else None),
        bus=fields.text("bus", name),
        clock_mhz=fields.number("clock_mhz") if fields.has("clock_mhz") else None,
        width=width,
        nic=_nic(fields, folder) if fields.has("nic") else None,
        interface=fields.text("interface") if fields.has("interface") else None,
        mac=mac,
        wiring=fields.strings("wiring"),
    )
    fields.end()
    if host.interface and host.mac:
        fields.refuse("mac", "given beside interface", "interface names the host that steers, mac the one it talks to")
    return host


def _nic(fields: Fields, folder: Path) -> str | Path:
    """A profile that pcitrace has, or a file, which is copied into the run folder."""
    name = fields.text("nic")
    if name in NICS:
        return name
    file = (folder / name).resolve()
    if not file.is_file():
        near = difflib.get_close_matches(name, NICS, 1)
        remedy = f"did you mean {near[0]}?" if near else f"write one of {', '.join(NICS)}, or the path of a profile"
        fields.refuse("nic", f"{name!r} is neither a NIC profile of pcitrace nor a file", remedy)
    return file


def _link(fields: Fields) -> dict[str, Any]:
    link: dict[str, Any] = {"rate_mbit_s": fields.number("rate_mbit_s")}
    if fields.has("medium"):
        link["medium"] = fields.text("medium")
    for key in ("preamble_bytes", "gap_bytes"):
        if fields.has(key):
            link[key] = fields.integer(key)
    fields.end()
    return link


def _sweep(fields: Fields) -> Sweep:
    sweep = Sweep(fields.text("key"), tuple(fields.anything("values")))
    fields.end()
    if not sweep.values:
        raise PlanError(fields.key("values"), "is empty", "list the values to go through")
    return sweep


def _sync_line(fields: Fields, analysers: tuple[AnalyserPlan, ...]) -> str:
    line = fields.text("line")
    fields.end()
    for analyser in analysers:
        if not analyser.replay and line not in analyser.spec.channels.values():
            raise PlanError(
                fields.key("line"),
                f"analyser {analyser.spec.name} does not record {line}",
                "name a line that is wired to every analyser",
            )
    return line


def _check_ends(plan: Plan) -> None:
    """A test needs one end here and at least one elsewhere; no more than two buses are joined."""
    if not plan.analysers and plan.test is None:
        raise PlanError("analysers", "is missing", "describe an analyser under [[analysers]], or frames under [test]")
    recorded = [host.name for host in plan.hosts if host.analyser is not None]
    if not plan.hosts or len(recorded) > 2:
        raise PlanError(
            "hosts",
            f"{len(recorded) or len(plan.hosts)} hosts",
            "describe one or two with a bus under [hosts.NAME], and any number of others",
        )
    if plan.test is None:
        for analyser in plan.analysers:
            spec = analyser.spec
            if spec.samples is None and analyser.replay is None:
                raise PlanError(
                    f"analysers[{plan.analysers.index(analyser)}]",
                    "records until the frames are through, but the plan sends none",
                    "give samples or duration_ms, or a [test]",
                )
        if plan.companions:
            raise PlanError("companions", "beside no test", "describe the frames of this run under [test]")
        return
    here = [host.name for host in plan.hosts if host.interface]
    if len(here) != 1:
        raise PlanError(
            "hosts", f"{len(here)} of them have an interface", "give interface to the one host this machine is"
        )
    if not plan.peers:
        raise PlanError("hosts", "no host has a mac", "give the mac that 'framegen serve' prints on the other host")
    udp = bool(plan.test.options.get("udp"))
    for host in plan.hosts:
        if host.mac is not None and is_ipv4(host.mac) != udp:
            found, remedy = ("mac", "address, such as 10.0.0.2") if udp else ("address", "mac, or [test] udp = true")
            raise PlanError(f"hosts.{host.name}.{found}", "does not go with how frames are sent", f"give {remedy}")


def _check_pause(plan: Plan) -> None:
    """PAUSE frames hold what comes here."""
    if plan.pause is None:
        return
    if plan.test is None:
        raise PlanError("pause", "beside no test", "describe the frames that are held, under [test]")
    if plan.test.kind in ("stream", "max-rate", "background") and plan.test.options.get("direction") not in (
        "from-peer",
        "both",
    ):
        remedy = 'write direction = "from-peer"; or pause_seconds under [test]: then the peer asks for it'
        raise PlanError("pause", "holds no frame of a stream that goes to the peer", remedy)
    if (last := plan.pause.after_ms / 1e3 + plan.pause.seconds) > plan.test.max_seconds:
        most = plan.test.max_seconds
        raise PlanError("pause.seconds", f"ends {last:g} s after the first frame", f"test.max_seconds is {most:g}")


def _check_bus(host: HostPlan, analysers: tuple[AnalyserPlan, ...]) -> list[str]:
    """Lines and rate of a host's bus."""
    if host.analyser is None:
        return [f"hosts.{host.name}: no analyser records its bus"] if analysers else []
    spec = analysers[host.analyser].spec
    lines = set(spec.channels.values()) | {f"{host.bus}_{line}" for line in host.wiring}
    if lines and not host.wiring:
        prefix = f"{host.bus}_" if any(line.startswith(f"{host.bus}_") for line in lines) else ""
        # in state mode every sample is a clock, and CLK is what clocks the analyser
        needed = [line for line in _MINIMUM if line != "CLK" or spec.clock_mhz is None]
        if missing := [prefix + line for line in needed if prefix + line not in lines]:
            raise PlanError(
                f"analysers[{host.analyser}].channels",
                f"without {', '.join(missing)} the bus of host {host.name} cannot be decoded",
                f"name the channels so; lines of host {host.name} begin with {host.bus}_ if it is not alone",
            )
    return _check_rate(host, spec)


def _check_rate(host: HostPlan, spec: AnalyserSpec) -> list[str]:
    if host.clock_mhz is None or spec.rate_hz is None:
        return []
    ratio = spec.rate_hz / (host.clock_mhz * 1e6)
    where = f"{spec.name}: {spec.rate_hz / 1e6:g} MS/s for a clock of {host.clock_mhz:g} MHz"
    if ratio < 2:
        raise PlanError(
            f"hosts.{host.name}.clock_mhz",
            f"{where} misses edges",
            f"record at {3 * host.clock_mhz:.0f} MS/s or more, or in state mode (clock_mhz of the analyser)",
        )
    if ratio < 2.95:
        return [f"{where} is under 3 samples a clock: edges may be missed"]
    return []
