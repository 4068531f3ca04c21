"""A PCI protocol decoder for sigrok, written for the comparison in docs/benchmarks.md; not for use."""

from .pd import Decoder  # noqa: F401
