"""Many runs: analysed on one machine or on many, their numbers in one table.

    patterns -> sources -> (Dask: work -> supervise -> child) -> layout -> collect -> combine, page

Each run is analysed in a process of its own, so that one that crashes, hangs or eats memory fails alone.
"""

from pcitrace.campaign.campaign import Campaign
from pcitrace.campaign.errors import CampaignError
from pcitrace.campaign.options import Limits, Options

__all__ = ["Campaign", "CampaignError", "Limits", "Options"]
