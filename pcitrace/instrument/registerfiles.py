"""Register files of other tools: CMSIS-SVD by `cmsis-svd`, SystemRDL by `systemrdl-compiler` (the extra `registers`).

IP-XACT is made SystemRDL first by the program ``peakrdl``, where it is installed: its reader of IP-XACT, the only one
that is kept, is GPL, so it is no library of ours.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from pcitrace.errors import ConfigurationError
from pcitrace.instrument.blocks import Block, Field, Register

__all__ = ["read"]


def read(path: Path) -> list[Block]:
    """Read a register file by its suffix, ``.svd``, ``.rdl`` or ``.xml`` (SVD, IP-XACT); else ConfigurationError."""
    if not path.is_file():
        raise ConfigurationError(f"{path}: there is no such file", path)
    try:
        if path.suffix == ".rdl":
            return _of_rdl(path)
        if path.suffix in (".svd", ".xml"):
            return _of_ipxact(path) if _is_ipxact(path) else _of_svd(path)
    except ImportError as error:
        raise ConfigurationError(
            f"{path}: needs {error.name}, which is not installed: pip install 'pcitrace[registers]'", path
        ) from error
    raise ConfigurationError(
        f"{path}: a register file ends in .toml, .svd, .rdl or .xml; convert others to one of them", path
    )


def _of_svd(path: Path) -> list[Block]:
    from cmsis_svd.parser import SVDParser

    try:
        device = SVDParser.for_xml_file(str(path)).get_device()
        blocks = [_of_peripheral(one) for one in device.get_peripherals()]
    except Exception as error:  # the parser raises whatever lxml and its own model do
        raise ConfigurationError(f"{path}: not a CMSIS-SVD file: {error}", path) from error
    if not blocks:
        raise ConfigurationError(f"{path}: not a CMSIS-SVD file: it has no peripherals", path)
    return blocks


def _of_peripheral(peripheral: Any) -> Block:
    registers = tuple(
        Register(
            one.name,
            one.address_offset,
            (one.size or 32) // 8,
            tuple(_of_svd_field(field) for field in one.get_fields() or ()),
        )
        for one in peripheral.get_registers() or ()
        # An alternate register is another view of the same bytes.
        if one.alternate_register is None and one.alternate_group is None
    )
    return Block(peripheral.name, registers, base=peripheral.base_address)


def _of_svd_field(field: Any) -> Field:
    values = tuple(
        (value.value, value.name)
        for some in field.enumerated_values or ()
        for value in some.enumerated_values or ()
        if value.value is not None
    )
    return Field(field.name, field.bit_offset, field.bit_width, values)


def _is_ipxact(path: Path) -> bool:
    """Whether an XML file is a component of IP-XACT, IEEE 1685 or SPIRIT before it."""
    try:
        _, root = next(ElementTree.iterparse(path, events=("start",)))
    except (ElementTree.ParseError, StopIteration):
        return False
    space, _, name = root.tag.rpartition("}")
    return name == "component" and ("ipxact" in space.lower() or "spirit" in space.lower())


def _of_ipxact(path: Path) -> list[Block]:
    beside = Path(sys.executable).parent
    program = shutil.which("peakrdl", path=f"{beside}{os.pathsep}{os.environ.get('PATH', os.defpath)}")
    if program is None:
        raise ConfigurationError(
            f"{path}: IP-XACT is made SystemRDL by peakrdl, which is not installed: pip install peakrdl", path
        )
    with tempfile.TemporaryDirectory(prefix="pcitrace-") as folder:
        made = Path(folder) / f"{path.stem}.rdl"
        done = subprocess.run(
            [program, "systemrdl", str(path.resolve()), "-o", str(made)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
        )
        if done.returncode != 0 or not made.is_file():
            said = [line for line in done.stderr.splitlines() if line.strip()]
            why = said[-1].strip() if said else f"it ended with {done.returncode}"
            raise ConfigurationError(f"{path}: peakrdl cannot read it: {why}", path)
        return _of_rdl(made)


def _of_rdl(path: Path) -> list[Block]:
    from systemrdl.compiler import RDLCompiler
    from systemrdl.messages import MessagePrinter, RDLCompileError
    from systemrdl.node import RegNode

    said: list[str] = []

    class Quiet(MessagePrinter):
        """Keeps what the compiler says, for our one line."""

        def print_message(self, severity: Any, text: str, src_ref: Any) -> None:
            said.append(text)

    compiler = RDLCompiler(message_printer=Quiet())
    try:
        compiler.compile_file(str(path))
        top = compiler.elaborate().top
    except RDLCompileError as error:
        raise ConfigurationError(f"{path}: not a SystemRDL file: {said[0] if said else error}", path) from error
    registers = tuple(
        Register(
            node.get_rel_path(top),
            node.absolute_address,
            node.size,
            tuple(_of_rdl_field(field) for field in node.fields()),
        )
        for node in top.descendants(unroll=True)
        if isinstance(node, RegNode)
    )
    return [Block(top.inst_name, registers, base=0)]


def _of_rdl_field(node: Any) -> Field:
    encode = node.get_property("encode")
    values = tuple((int(member.value), member.name) for member in encode) if encode is not None else ()
    return Field(node.inst_name, node.low, node.width, values)
