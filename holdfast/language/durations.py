"""Lengths of time in the language: see `holdfast.durations`."""

from __future__ import annotations

from holdfast.durations import Duration as Duration
from holdfast.durations import seconds as seconds
