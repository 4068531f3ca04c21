"""What can go wrong: every message says where, what was found and what to do about it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn


class PcicapError(Exception):
    """Something stops pcicap; the message is one line for the user.

    Attributes
    ----------
    exit_status : int
        What the command line ends with: 2 wrong use, 3 bad input, 4 the recording failed or is incomplete.
    """

    exit_status = 4


class PlanError(PcicapError):
    """A plan that cannot be carried out.

    Parameters
    ----------
    key : str
        The offending key as it is written in the plan, e.g. ``analysers[0].rate_hz``.
    found : str
        What is wrong with it.
    remedy : str
        What to write instead.
    """

    exit_status = 3

    def __init__(self, key: str, found: str, remedy: str) -> None:
        self.key = key
        self.found = found
        self.remedy = remedy
        super().__init__(f"{key}: {found}; {remedy}")


class PlanFaultsError(PlanError):
    """Everything that is wrong with a plan, a line each; key, found and remedy are those of the first.

    Parameters
    ----------
    faults : sequence of PlanError
        Two at least.
    """

    def __init__(self, faults: Sequence[PlanError]) -> None:
        super().__init__(faults[0].key, faults[0].found, faults[0].remedy)
        self.faults = tuple(faults)

    def __str__(self) -> str:
        return "\n".join(map(str, self.faults))


@contextmanager
def collected(faults: list[PlanError]) -> Iterator[None]:
    """Collect what is wrong with a plan instead of raising it."""
    try:
        yield
    except PlanFaultsError as error:
        faults += error.faults
    except PlanError as error:
        faults.append(error)


def raise_all(faults: Sequence[PlanError]) -> NoReturn:
    """Raise one fault as it is, or several together."""
    raise faults[0] if len(faults) == 1 else PlanFaultsError(faults)


class CaptureFileError(PcicapError):
    """A capture file that cannot be read or served."""

    exit_status = 3


class AnalyserError(PcicapError):
    """The analyser refused, went away, or did not deliver."""


class FrameError(PcicapError):
    """framegen is missing, refused the test or ended badly."""


class RunFolderError(PcicapError):
    """The run folder cannot be written or continued."""
