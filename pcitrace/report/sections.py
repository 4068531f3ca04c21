"""The sections of the report, each from the results of a run."""

from pcitrace.report.passage import path_of_a_frame, transit
from pcitrace.report.rest import frame_logs, left_out
from pcitrace.report.sums import model, occupancy, pci

__all__ = ["SECTIONS"]

SECTIONS = (path_of_a_frame, transit, model, pci, occupancy, left_out, frame_logs)
"""In the order of the page; each takes the results and returns a section, or None where there is nothing to say."""
