"""Register files of other tools: CMSIS-SVD by `cmsis-svd`, SystemRDL by `systemrdl-compiler` (the extra `registers`).

IP-XACT is not read: its only kept reader is GPL. ``peakrdl`` converts it to SystemRDL.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pcitrace.errors import ConfigurationError
from pcitrace.instrument.blocks import Block, Field, Register

__all__ = ["read"]


def read(path: Path) -> list[Block]:
    """Read a register file by its suffix, ``.svd``, ``.xml`` or ``.rdl``; ConfigurationError if that fails."""
    if not path.is_file():
        raise ConfigurationError(f"{path}: there is no such file", path)
    try:
        if path.suffix in (".svd", ".xml"):
            return _of_svd(path)
        if path.suffix == ".rdl":
            return _of_rdl(path)
    except ImportError as error:
        raise ConfigurationError(
            f"{path}: needs {error.name}, which is not installed: pip install 'pcitrace[registers]'", path
        ) from error
    raise ConfigurationError(
        f"{path}: a register file ends in .toml, .svd or .rdl; convert others to one of them", path
    )


def _of_svd(path: Path) -> list[Block]:
    from cmsis_svd.parser import SVDParser

    try:
        device = SVDParser.for_xml_file(str(path)).get_device()
        return [_of_peripheral(one) for one in device.get_peripherals()]
    except ConfigurationError:
        raise
    except Exception as error:  # the parser raises whatever lxml and its own model do
        raise ConfigurationError(f"{path}: not a CMSIS-SVD file: {error}", path) from error


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
            node.raw_absolute_address,
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
