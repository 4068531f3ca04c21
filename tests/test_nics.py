"""NIC profiles: those that come with pcitrace, those the documentation shows, and wrong ones."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import REPOSITORY
from nicruns import documented_profiles

from pcitrace import ConfigurationError, profiles

MINIMAL = 'format = 1\nname = "x"\ntitle = "X"\nsources = ["s"]\n'


@pytest.mark.parametrize("name", profiles.built_in())
def test_profiles_that_come_with_it(name: str) -> None:
    profile = profiles.load(name)
    assert profile.name == name
    assert profile.sources
    text = (REPOSITORY / "pcitrace" / "nics" / f"{name}.toml").read_text()
    assert text.startswith("# "), "a profile is headed by its source"
    places = [(r.window, r.offset + i * r.stride) for r in profile.registers for i in range(r.count)]
    assert len(set(places)) == len(places), "two registers at one place"


def test_the_named_cards_are_there() -> None:
    assert set(profiles.built_in()) == {"acenic", "generic", "i82558", "i8254x", "sk9843"}
    assert profiles.load("generic").registers == ()
    doorbells = {
        name: [r.name for r in profiles.load(name).registers if r.role == "send_doorbell"]
        for name in ("acenic", "i8254x", "sk9843")
    }
    assert doorbells == {"acenic": ["TxPrd"], "i8254x": ["TDT"], "sk9843": ["XS1_CSR", "XA1_CSR"]}
    assert profiles.load("acenic").burst_limit_bytes == 380


def test_documented_profiles(tmp_path: Path) -> None:
    shown = documented_profiles()
    assert set(shown) == {"ring-model", "bridge-mac"}
    for name, text in shown.items():
        (tmp_path / f"{name}.toml").write_text(text)
        assert profiles.load(f"{name}.toml", folder=tmp_path).name == name


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        ("burst = 380\n", "burst", "unknown key"),
        ("[dma]\nburst_limit = 380\n", "dma.burst_limit", "did you mean burst_limit_bytes"),
        ('[dma]\nsend = "fast"\n', "dma.send", "allowed: 'store_and_forward', 'cut_through'"),
        ('[[registers]]\nname = "R"\noffset = 0\n', "registers[0]", "needs a window"),
        (
            '[[windows]]\nname = "w"\nsize_bytes = 16\n[[registers]]\nname = "R"\noffset = 16\n',
            "registers[0].offset",
            "outside its window",
        ),
        (
            '[[windows]]\nname = "w"\nsize_bytes = 16\n[[registers]]\nname = "R"\nwindow = "v"\noffset = 0\n',
            "registers[0].window",
            "none of the windows w",
        ),
        ('[descriptors]\nplace = "moon"\n', "descriptors.place", "allowed"),
    ],
)
def test_wrong_profiles(tmp_path: Path, text: str, key: str, words: str) -> None:
    (tmp_path / "x.toml").write_text(MINIMAL + text)
    with pytest.raises(ConfigurationError) as caught:
        profiles.load("x.toml", folder=tmp_path)
    assert caught.value.key == key
    assert words in str(caught.value)


def test_no_such_profile(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"no NIC profile 'tulip'.*acenic, generic"):
        profiles.load("tulip", folder=tmp_path)


def test_names_of_registers() -> None:
    array = profiles.Register("BD{}_STATUS", "w", 0x400, count=16, stride=8)
    assert array.label(3) == "BD3_STATUS"
    assert profiles.Register("CmdRng", "w", 0, count=4).label(2) == "CmdRng[2]"
    assert profiles.Register("ICR", "w", 0).label(0) == "ICR"


def test_every_key_is_documented() -> None:
    schema = json.loads((REPOSITORY / "pcitrace" / "nic-profile.schema.json").read_text())
    text = (REPOSITORY / "docs" / "nic-profiles.md").read_text()
    words = set(re.findall(r"[A-Za-z_0-9]+", text))

    def keys(node: Any) -> set[str]:
        if isinstance(node, list):
            return set().union(*map(keys, node)) if node else set()
        if not isinstance(node, dict):
            return set()
        own = set(node["properties"]) if isinstance(node.get("properties"), dict) else set()
        own |= set(node["enum"]) if isinstance(node.get("enum"), list) else set()
        return own.union(*(keys(value) for value in node.values()))

    wanted = {str(key) for key in keys(schema)}
    assert wanted - words == set()
