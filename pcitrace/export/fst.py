"""FST, a compact form of VCD that GTKWave and Surfer open at once. The kernel writes it from the lines of the VCD."""

from __future__ import annotations

from pathlib import Path

from pcitrace import _kernel
from pcitrace.export.gtkw import save_file
from pcitrace.export.kinds import Exported, Options
from pcitrace.export.source import Source
from pcitrace.export.vcd import header, write_body
from pcitrace.export.whole import appearing, written

__all__ = ["write"]


def write(source: Source, path: Path, options: Options, to: str) -> Exported:
    """Write the lines of one capture with the texts of its buses as FST, and a save file for GTKWave."""
    capture = source.only_capture()
    with appearing(path) as temporary:
        file = _kernel.Fst(str(temporary), header(source, capture))
        try:
            rows = write_body(source, capture, file.write)
        finally:
            file.close()
    save = path.with_suffix(".gtkw")
    with written(save) as text:
        text.write(save_file(source, capture, path).encode())
    return Exported((path, save), rows, tuple(source.left_out), (f"gtkwave {save}",))
