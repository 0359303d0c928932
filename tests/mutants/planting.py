"""Plants one defect, named by HOLDFAST_PLANT, when it is imported: as a plug-in of pytest, and by the server of the campaigns'
child processes."""

from __future__ import annotations

import os

from mutants.plants import BY_NAME

ENV = "HOLDFAST_PLANT"

if ENV in os.environ:
    BY_NAME[os.environ[ENV]].plant()
