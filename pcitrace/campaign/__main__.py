"""``python -m pcitrace.campaign FOLDER``: the process of one run; see :mod:`pcitrace.campaign.child`."""

import sys
from pathlib import Path

from pcitrace.campaign.child import main

main(Path(sys.argv[1]))
