"""What a campaign works out of one run: what ``pcitrace report`` and ``pcitrace network`` do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcitrace import analysed
from pcitrace.campaign.errors import CampaignError
from pcitrace.campaign.inputs import Inputs
from pcitrace.campaign.options import Options
from pcitrace.errors import PciTraceError

if TYPE_CHECKING:
    from pcitrace.analysed import AnalysedRun

__all__ = ["everything", "page"]


def everything(
    inputs: Inputs, url: str, options: Options, scratch: Path
) -> tuple[dict[str, Any], dict[str, Any] | None, AnalysedRun | None]:
    """Return the numbers of the buses, those of the network, and the run.

    Raises
    ------
    PciTraceError
        There is neither.
    """
    wiring = None
    if options.wiring is not None and not inputs.run:
        wiring = scratch / "wiring.toml"
        wiring.write_text(options.wiring)
    run = analysed.open(inputs.path, wiring=wiring, threads=1, **options.opening())
    results: dict[str, Any] = {}
    has_bus = run.folder is None or bool(run.folder.bus_hosts)
    if has_bus:
        results = run.results.as_dict() | {"run": url}
    network = None
    if run.folder is not None and run.folder.run.get("frame_logs"):
        try:
            network = run.network.as_dict()
        except PciTraceError as error:
            if not has_bus:
                raise
            network = {"results": [], "findings": [f"the frame logs tell nothing: {error}"]}
    if not results and network is None:
        raise CampaignError(f"{url}: an empty run: neither a bus nor frame logs were recorded")
    return results, network, run if has_bus else None


def page(run: AnalysedRun, path: Path) -> None:
    """Write the report of a run."""
    from pcitrace import report

    report.write(run.results, path)
