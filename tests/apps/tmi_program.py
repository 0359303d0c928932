"""The tmi example without Spark: `python tmi_program.py DIRECTORY`. HOLDFAST_FP says how it dies."""

from __future__ import annotations

import sys
from pathlib import Path

from app_data import APPS

from holdfast.testing import run_local

if __name__ == "__main__":
    here = Path(sys.argv[1])
    run_local(APPS["tmi"].build(here, period=0.1, rows_per_step=1000), f"file:{here / 'store'}")
