"""Units of one direction, for tests of what they add up to."""

from __future__ import annotations

from typing import Any

import numpy as np

from pcitrace.columns import Floats, Integers
from pcitrace.traffic.ahead import Units


def units(count: Integers, first_us: Floats, last_us: Floats, **columns: Any) -> Units:
    """Units of whole data phases, none of them short, each asked for when its data come; or with other columns."""
    none = np.zeros_like(count)
    usual = {"foreign": none, "ending": none > 0, "short": none > 0, "asked_us": first_us, "period": none}
    return Units(count=count, first_us=first_us, last_us=last_us, **(usual | columns))
