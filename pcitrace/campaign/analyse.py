"""What a campaign works out of one run: what ``pcitrace report`` and ``pcitrace network`` do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcitrace import analysed, granted
from pcitrace.campaign.errors import CampaignError
from pcitrace.campaign.inputs import Inputs
from pcitrace.campaign.options import Options
from pcitrace.errors import PciTraceError

if TYPE_CHECKING:
    from pcitrace.analysed import AnalysedRun

__all__ = ["cards", "everything", "has_bus", "is_long", "opened", "page"]


def opened(inputs: Inputs, options: Options, scratch: Path) -> AnalysedRun:
    """Open the run."""
    wiring = None
    if options.wiring is not None and not inputs.run:
        wiring = scratch / "wiring.toml"
        wiring.write_text(options.wiring)
    run = analysed.open(inputs.path, wiring=wiring, threads=1, **options.opening())
    granted.settle(run, options.grants)
    return run


def is_long(run: AnalysedRun, samples: float) -> bool:
    """Return whether a capture of it has more samples."""
    return any((capture.sample_count or 0) > samples for capture in run.captures)


def everything(run: AnalysedRun, url: str) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return the numbers of the buses, and those of the network.

    Raises
    ------
    PciTraceError
        There is neither.
    """
    results: dict[str, Any] = {}
    if has_bus(run):
        results = run.results.as_dict() | {"run": url}
    network = None
    if run.folder is not None and any(run.folder.run.get(name) for name in MEASURED):
        try:
            network = run.network.as_dict()
        except PciTraceError as error:
            if not has_bus(run):
                raise
            network = {"results": [], "findings": [f"the frame logs tell nothing: {error}"]}
    if not results and network is None:
        raise CampaignError(f"{url}: an empty run: neither a bus nor frame logs were recorded")
    return results, network


MEASURED = ("frame_logs", "histograms", "tool_outputs")
"""Tables of run.toml that measure a network: logs, round trips counted in bins, outputs of iperf3, ping and others."""


def has_bus(run: AnalysedRun) -> bool:
    """Return whether a bus was recorded."""
    return run.folder is None or bool(run.folder.bus_hosts)


def cards(run: AnalysedRun) -> dict[str, str]:
    """Return the name of the card of each host, as its profile says it: two files may both be called card.toml."""
    if run.folder is None:
        return {}
    return {name: run.folder.profile(name).name for name in run.folder.run["hosts"]}


def page(run: AnalysedRun, path: Path) -> None:
    """Write the report of a run."""
    from pcitrace import report

    report.write(run.results, path)
