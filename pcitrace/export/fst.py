"""FST, a compact form of VCD that GTKWave and Surfer open at once. The kernel writes it."""

from __future__ import annotations

from functools import partial
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
        write_lines = partial(_kernel.write_fst, capture._kernel, str(temporary), header(source, capture))
        rows, shown = write_body(source, capture, write_lines)
    save = path.with_suffix(".gtkw")
    with written(save) as text:
        text.write(save_file(source, capture, path, shown).encode())
    return Exported((path, save), rows, tuple(source.left_out), (f"gtkwave {save}",))
