"""Files that real analysers wrote, with sigrok-cli as the oracle."""

from __future__ import annotations

import re
import subprocess
import zipfile
from pathlib import Path

import pytest
from conftest import needed_program, shared_dir

import pcitrace

FILES = [
    "ad5258_read_rdac_and_eeprom_write_rdac_63_store_eeprom_to_rdac_read_rdac", "cmd13_r1_2", "ir_bose_button1_hold",
    "kc85-20mhz", "lan8720a_read_all_unplugged", "mrf24j40-reset-wakeup", "no-samplerate", "nrf24l01-communication",
    "read-pio-registers", "ssd1306-i2c", "ssi32_bananapi_loop_test", "usb_reset_and_setup_lowspeed",
    "zp_a0_uart_a_115200_unitsize4",
]  # fmt: skip
ANALOG_BESIDE_LOGIC = FILES[0]
ANALOG_ONLY = "read-pio-registers"


def sigrok(*arguments: str) -> bytes:
    """What sigrok-cli writes to stdout."""
    return subprocess.run([needed_program("sigrok-cli"), *arguments], capture_output=True, check=True).stdout


def metadata(path: Path) -> dict[str, str]:
    """The keys of a session file's metadata."""
    with zipfile.ZipFile(path) as archive:
        text = archive.read("metadata").decode()
    return {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in text.splitlines())}


def logic_members(path: Path) -> bytes:
    """The logic data of a session file, its chunks in order."""
    with zipfile.ZipFile(path) as archive:
        chunks = [name for name in archive.namelist() if name.startswith("logic-1")]
        return b"".join(archive.read(name) for name in sorted(chunks, key=lambda n: int(n.split("-")[-1])))


def test_every_file_is_listed() -> None:
    assert sorted(path.stem for path in (shared_dir() / "captures").glob("*.sr")) == sorted(FILES)


@pytest.mark.parametrize("name", [name for name in FILES if name != ANALOG_ONLY])
def test_samples_equal_sigrok(name: str) -> None:
    path = shared_dir() / "captures" / f"{name}.sr"
    [capture] = pcitrace.open(path).captures
    samples = capture.samples()
    wanted = logic_members(path) if name == ANALOG_BESIDE_LOGIC else sigrok("-i", str(path), "-O", "binary")
    unit_size = int(metadata(path)["unitsize"])
    assert samples.shape == (len(wanted) // unit_size, unit_size)
    assert samples.tobytes() == wanted
    assert capture.sample_count == len(samples)


@pytest.mark.parametrize("name", [name for name in FILES if name != ANALOG_ONLY])
def test_names_and_rate_equal_sigrok(name: str) -> None:
    path = shared_dir() / "captures" / f"{name}.sr"
    [capture] = pcitrace.open(path).captures
    shown = sigrok("-i", str(path), "--show").decode()
    # sigrok lists channels that were not enabled by their number; the file names the enabled ones only.
    logic = re.findall(r"^- (.*): logic$", shown, re.M)
    stated = metadata(path)
    enabled = {int(key.removeprefix("probe")) for key in stated if re.fullmatch(r"probe\d+", key)}
    assert capture.channels == [name for number, name in enumerate(logic, 1) if number in enabled]
    rate = re.search(r"^Samplerate: (\d+)$", shown, re.M)
    assert capture.rate_hz == (float(rate[1]) if rate and "samplerate" in stated else None)


def test_analog_only_is_a_clear_error() -> None:
    path = shared_dir() / "captures" / f"{ANALOG_ONLY}.sr"
    with pytest.raises(pcitrace.CaptureFormatError, match=r"read-pio-registers\.sr.*(analog|no logic)"):
        pcitrace.open(path)
