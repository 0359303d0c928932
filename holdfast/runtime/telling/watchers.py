"""Who watches a run: listeners, and a page with metrics. What they do never harms it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.runtime.telling.listener import Listener, Listening

if TYPE_CHECKING:
    from holdfast.runtime.telling.metrics_page import MetricsPage


class Watchers:
    """Of one run. `status`: what is shown; None while there is nothing to show."""

    def __init__(
        self,
        listeners: Sequence[Listener],
        metrics: str | None,
        status: Callable[[], Mapping[str, Any] | None],
    ) -> None:
        self.listening = tuple(Listening(listener) for listener in listeners)
        """Subscribers of the run's events."""
        self._address, self._status = metrics, status
        self.page: MetricsPage | None = None

    def open(self) -> None:
        """ConfigError if the page cannot be shown."""
        if self._address is not None:
            from holdfast.runtime.telling.metrics_page import MetricsPage

            self.page = MetricsPage(self._address, self._status)

    def close(self) -> None:
        """The run is over."""
        for each in self.listening:
            each.close()
        if self.page is not None:
            self.page.close()
            self.page = None
