"""Publishing in stores whose answer may get lost on its way: what a failure means is looked up, never assumed."""

from __future__ import annotations

from abc import abstractmethod

from holdfast.errors import HoldfastError
from holdfast.ids import Epoch, RegionName
from holdfast.store.base import Store
from holdfast.store.names import check_epoch, check_name


class LookedUpStore(Store):
    """A store that publishes by one request to a database or server."""

    def publish(self, region: RegionName, epoch: Epoch, manifest: bytes) -> None:
        check_name("region", region)
        check_epoch(epoch)
        try:
            self._publish(region, epoch, manifest)
        except HoldfastError:
            raise
        except Exception:
            # Any failure: in place is published.
            if epoch not in self.epochs(region) or self.manifest(region, epoch) != manifest:
                raise
            self.check_owner()

    @abstractmethod
    def _publish(self, region: RegionName, epoch: Epoch, manifest: bytes) -> None:
        """Make the manifest the newest epoch, as `publish` says; names are checked."""
