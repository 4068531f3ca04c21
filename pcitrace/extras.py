"""What only some installations have: the extras of pyproject.toml."""

from pcitrace.errors import PciTraceError

__all__ = ["need_fits"]


def need_fits(what: str) -> None:
    """Raise a PciTraceError that says how to install what fits need, where it is not there; `what` needs it."""
    try:
        import iminuit  # noqa: F401
        import scipy  # noqa: F401
    except ImportError as error:
        raise PciTraceError(f"{what}: {error.name} is not installed: pip install 'pcitrace[fits]'") from error
