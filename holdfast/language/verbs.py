"""What the verbs of `Stream` are built on; they are spread over several files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.language.graph import Spec

if TYPE_CHECKING:
    from holdfast.language.stream import Stream


class Verbs(ABC):
    """A part of `Stream`, which says how operators are added."""

    __slots__ = ()

    @abstractmethod
    def _then(self, spec: Spec, name: str | None, outputs: int = 1, beside: Sequence[Stream] = ()) -> Stream:
        """Add an operator that reads this stream, and those `beside` it, each at a port of its own."""
