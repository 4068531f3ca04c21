"""Puts what ships with pcitrace for other programs where these look for it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

__all__ = ["sigrok_decoder", "wireshark_dissector"]

_SHIPPED = Path(__file__).parent / "programs"


def sigrok_decoder(folder: Path | None = None) -> Path:
    """Install the decoder ``pci`` for sigrok-cli and PulseView.

    Parameters
    ----------
    folder : pathlib.Path, optional
        Folder of decoders; default: ``SIGROKDECODE_DIR``, else that of the user
        (``~/.local/share/libsigrokdecode/decoders``).

    Returns
    -------
    pathlib.Path
        The decoder's folder.
    """
    stated = os.environ.get("SIGROKDECODE_DIR")
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    decoders = folder or (Path(stated) if stated else data / "libsigrokdecode" / "decoders")
    target = decoders / "pci"
    target.mkdir(parents=True, exist_ok=True)
    for file in ("__init__.py", "pd.py"):
        shutil.copyfile(_SHIPPED / "sigrok_pci" / file, target / file)
    return target


def wireshark_dissector(folder: Path | None = None) -> Path:
    """Install the dissector ``pcibus`` for Wireshark and tshark.

    Parameters
    ----------
    folder : pathlib.Path, optional
        Folder of Lua plugins; default: that of the user (``~/.local/lib/wireshark/plugins``).

    Returns
    -------
    pathlib.Path
        The plugin.
    """
    plugins = folder or Path.home() / ".local" / "lib" / "wireshark" / "plugins"
    plugins.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copyfile(_SHIPPED / "pcibus.lua", plugins / "pcibus.lua"))
