"""``python -m pcicap``: the same as the console script."""

import sys

from pcicap.cli import main

sys.exit(main())
