"""FST, a compact form of VCD that GTKWave and Surfer open at once: through GTKWave's own ``vcd2fst``."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from pcitrace.errors import ConfigurationError
from pcitrace.export.gtkw import save_file
from pcitrace.export.kinds import Exported, Options
from pcitrace.export.source import Source
from pcitrace.export.vcd import header, write_body
from pcitrace.export.whole import appearing, written

__all__ = ["write"]


def write(source: Source, path: Path, options: Options, to: str) -> Exported:
    """Write the lines of one capture with the texts of its buses as FST, and a save file for GTKWave.

    Raises
    ------
    ConfigurationError
        ``vcd2fst`` is not installed, or did not take what it was given.
    """
    program = shutil.which("vcd2fst")
    if program is None:
        raise ConfigurationError(
            "fst is written by vcd2fst of GTKWave, which is not installed: apt-get install gtkwave; or export --to vcd",
            path,
        )
    capture = source.only_capture()
    with appearing(path) as temporary:
        rows = _piped([program, "-v", "-", "-f", str(temporary)], source, path)
    save = path.with_suffix(".gtkw")
    with written(save) as file:
        file.write(save_file(source, capture, path).encode())
    return Exported((path, save), rows, tuple(source.left_out), (f"gtkwave {save}",))


def _piped(command: list[str], source: Source, path: Path) -> dict[str, int]:
    """Give the VCD to a program; return how many texts of what there are."""
    capture = source.only_capture()
    rows: dict[str, int] = {}
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=said) as process,
    ):
        assert process.stdin is not None
        try:
            process.stdin.write(header(source, capture))
            rows = write_body(source, capture, process.stdin.write)
            process.stdin.close()
        except BrokenPipeError:
            rows = {}
        except BaseException:
            process.kill()
            raise
        if process.wait() != 0 or not rows:
            said.seek(0)
            words = said.read().decode(errors="replace").strip() or f"it ended with {process.returncode}"
            raise ConfigurationError(f"vcd2fst could not write {path}: {words}", path)
    return rows
