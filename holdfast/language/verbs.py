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
    def _then(self, spec: Spec, name: str | None, outputs: int = 1) -> Stream:
        """Add an operator that reads this stream."""

    @abstractmethod
    def _beside(self, others: Sequence[Stream], spec: Spec, name: str | None) -> Stream:
        """Add an operator that reads this stream and the others, each at a port of its own."""
