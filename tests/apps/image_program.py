"""An example that keeps pictures, without Spark: `python image_program.py APP DIRECTORY`. HOLDFAST_FP says how it dies."""

from __future__ import annotations

import sys
from pathlib import Path

from image_apps import IMAGE_APPS

from holdfast.testing import run_local

if __name__ == "__main__":
    app, here = IMAGE_APPS[sys.argv[1]], Path(sys.argv[2])
    mode = sys.argv[3] if len(sys.argv) > 3 else "async"
    trigger = "periodic" if mode == "independent" else "aware"
    made = app.build(here, period=0.05, rows_per_step=30, mode=mode, trigger=trigger)
    run_local(made, f"file:{here / 'store'}")
