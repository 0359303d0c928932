"""Every error holdfast raises on purpose, in one tree.

HoldfastError                     exit code 1
├── TopologyError            2    the graph as written cannot run; raised before anything starts
├── ConfigError              3    a setting, URL or environment is wrong
├── InputError               4    a source or a row is not what was declared
├── StateError               5    an operator's state cannot be encoded, or does not fit the operator
├── StoreError               6    the store refused or failed
│   ├── DamagedError         7    bytes in the store are not what was written; nothing was changed
│   ├── OwnedError           8    another live run owns the store
│   ├── FencedError          9    this run was replaced by a newer owner and must stop
│   └── NoSpaceError        10    the disk is full; the previous epoch is intact
├── MismatchError           11    the store belongs to another job, topology or newer format
├── RegionParkedError       12    a region used up its resets; its state is intact
├── StepFailed              13    a step of an element failed (the region resets; users see it when parked)
│   ├── WorkerDied          17    a process that worked for a step ended, or did not answer; a row may have done it
│   └── OperatorFailed      15    the user's code of an operator raised; the same failure at the same rows is not tried again
│       └── PoisonFound     18    a row ends, hangs or fails its operator, which is to be parked then
├── BudgetExceededError     16    more was lost than a stream may lose; it is parked
└── EngineGoneError         14    Spark itself is gone; the last published epoch is the truth

Each carries one clear sentence (`str(error)`) and a `cure`: what to do next.
"""

from __future__ import annotations


class HoldfastError(Exception):
    """Base of the tree. `message` says what is wrong and where; `cure` says what to do next."""

    exit_code = 1

    def __init_subclass__(cls, exit_code: int | None = None) -> None:
        cls.exit_code = exit_code or cls.exit_code

    def __init__(self, message: str, *, cure: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.cure = cure

    def __str__(self) -> str:
        between = "\n" if "\n" in self.message else " "
        return f"{self.message}{between}{self.cure}".rstrip()

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process borders (Spark workers); keyword arguments must survive pickling.
        return (_rebuild, (type(self), self.message, self.cure))


def _rebuild(cls: type[HoldfastError], message: str, cure: str) -> HoldfastError:
    return cls(message, cure=cure)


class TopologyError(HoldfastError, exit_code=2):
    """The graph as written cannot run."""


class ConfigError(HoldfastError, exit_code=3):
    """A setting, URL or the environment is wrong."""


class InputError(HoldfastError, exit_code=4):
    """A source, file or row is not what was declared."""


class StateError(HoldfastError, exit_code=5):
    """An operator's state cannot be encoded, or does not fit the operator."""


class StoreError(HoldfastError, exit_code=6):
    """The store refused or failed."""


class DamagedError(StoreError, exit_code=7):
    """Bytes in the store are not what was written. Nothing was changed."""


class OwnedError(StoreError, exit_code=8):
    """Another live run owns the store."""


class FencedError(StoreError, exit_code=9):
    """A newer owner replaced this run; it must stop without another write."""


class NoSpaceError(StoreError, exit_code=10):
    """The disk is full. The previous epoch is intact; the region waits for space."""


class MismatchError(HoldfastError, exit_code=11):
    """The store belongs to another job, another topology, or a newer format."""


class RegionParkedError(HoldfastError, exit_code=12):
    """A region used up its consecutive resets. Its last epoch is intact."""


class StepFailed(HoldfastError, exit_code=13):
    """A step of an element failed. The region resets; the user sees this when the region parks."""


class WorkerDied(StepFailed, exit_code=17):
    """A process that worked for a step ended without an answer; `is_late`: or did not answer in time."""

    is_late = False

    @staticmethod
    def after(limit_s: float) -> WorkerDied:
        """It did not answer in time."""
        made = WorkerDied(f"it had not ended after {limit_s:g} s")
        made.is_late = True
        return made


class OperatorFailed(StepFailed, exit_code=15):
    """The user's code of an operator raised. The first line of the message tells operator and error, the others the
    user's lines of the traceback and the row."""


class PoisonFound(OperatorFailed, exit_code=18):
    """A row was found that ends, hangs or fails its operator, and the user wants to look at it: `poison="park"`."""


class BudgetExceededError(HoldfastError, exit_code=16):
    """More was lost on the way to a stream than it may lose, and it is parked until somebody resumes."""


class EngineGoneError(HoldfastError, exit_code=14):
    """What runs the steps is gone: no reset can help, a new run goes on from the last published epoch."""
