"""What stops a campaign, and who said it in clear words."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from pcitrace.errors import PciTraceError

__all__ = ["CampaignError", "DestinationError", "failure", "is_full", "needs", "reaching", "writing"]


class CampaignError(PciTraceError):
    """A campaign cannot go on; what is done is kept, and the same command goes on from there."""


class DestinationError(CampaignError):
    """Results cannot be written: no use in analysing any more runs."""


def failure(run: str, reason: str) -> str:
    """Say which run failed and why; a reason may begin with the place already."""
    return reason if reason.startswith(run) else f"{run}: {reason}"


def is_full(error: BaseException | None) -> bool:
    """Whether a disk without space is behind an error: no fault of the run that met it."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        error = error.__cause__ or error.__context__
    return False


@contextmanager
def needs(what: str) -> Iterator[None]:
    """Say how to install what a campaign needs, where it is missing."""
    try:
        yield
    except ImportError as error:
        raise CampaignError(f"{what} needs more packages: pip install 'pcitrace[campaign]' ({error})") from error


@contextmanager
def reaching(url: str) -> Iterator[None]:
    """Turn what a storage says into one clear line that names the place."""
    try:
        yield
    except (OSError, ImportError, ValueError) as error:
        raise CampaignError(f"{url}: {_words(error)}") from error
    except Exception as error:
        # The libraries behind fsspec have error types of their own, which need not be installed.
        if type(error).__module__.partition(".")[0] not in {"botocore", "aiobotocore", "aiohttp", "gcsfs", "google"}:
            raise
        raise CampaignError(f"{url}: {_words(error)}") from error


@contextmanager
def writing(url: str) -> Iterator[None]:
    """As `reaching`, for the destination."""
    try:
        with reaching(url):
            yield
    except DestinationError:
        raise
    except CampaignError as error:
        raise DestinationError(f"{error}; what is done is kept: run the same command again to go on") from error


_REMEDIES = {
    "NoCredentialsError": "no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile",
    "PartialCredentialsError": "credentials are not complete: AWS_ACCESS_KEY_ID goes with AWS_SECRET_ACCESS_KEY",
    "EndpointConnectionError": "the object store does not answer; is AWS_ENDPOINT_URL right?",
    "PermissionError": "access refused; do the credentials reach this place?",
    "FileNotFoundError": "there is nothing",
}


def _words(error: Exception) -> str:
    remedy = _REMEDIES.get(type(error).__name__)
    said = (error.strerror if isinstance(error, OSError) else None) or " ".join(str(error).split())
    return f"{remedy} ({said})" if remedy and said else remedy or said or type(error).__name__
