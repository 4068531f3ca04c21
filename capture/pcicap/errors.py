"""What can go wrong: every message says where, what was found and what to do about it."""


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


class CaptureFileError(PcicapError):
    """A capture file that cannot be read or served."""

    exit_status = 3


class AnalyserError(PcicapError):
    """The analyser refused, went away, or did not deliver."""


class FrameError(PcicapError):
    """framegen is missing, refused the test or ended badly."""


class RunFolderError(PcicapError):
    """The run folder cannot be written or continued."""
