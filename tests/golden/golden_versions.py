"""The golden stores there are: the name of each directory and the job that wrote it.

A module has MANIFEST (the version it was written with), topology(root, resumed), OUTPUTS (how the rows of each sink are
compared), computed(root) (what those must be, from the input alone) and, if rows were lost, LOST (how many by element).
It never changes its meaning: the stores stay.
Only the newest one is ever made (make.py), which needs CONTENT, KILLED_AT and make_input(directory) as well.
"""

from __future__ import annotations

from types import ModuleType

import golden_format_1
import golden_manifest_2
import golden_manifest_3

VERSIONS: dict[str, ModuleType] = {
    "format-1": golden_format_1,
    "manifest-2": golden_manifest_2,
    "manifest-3": golden_manifest_3,
}
