"""pcicap: record the PCI buses of two hosts while raw Ethernet frames pass between them.

A plan goes in, a run folder comes out. What analyses the folder is another package, ``pcitrace``; neither imports
the other, the run folder is the contract between them.
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("pcicap")
except PackageNotFoundError:  # run from a checkout that was never installed
    __version__ = "0+checkout"

__all__ = ["__version__"]
