"""``python -m pcitrace`` is the command ``pcitrace``."""

import sys

from pcitrace.cli import main

sys.exit(main())
