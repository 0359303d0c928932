"""Where rows come from: files, a deterministic generator, and lists for tests.

Importing this package needs no Java: pyspark is imported only inside the methods that are handed a session.
"""

from __future__ import annotations

from holdfast.sources.beacon import Beacon
from holdfast.sources.files import Files
from holdfast.sources.lists import Rows

__all__ = ["Beacon", "Files", "Rows"]
