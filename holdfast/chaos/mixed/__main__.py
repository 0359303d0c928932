"""`python -m holdfast.chaos.mixed`."""

from __future__ import annotations

import sys

from holdfast.chaos.mixed.simulator import main

sys.exit(main())
