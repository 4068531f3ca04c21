"""The report: what it says, what it says of runs that tell little, and how it looks in a real browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("agg")

import pytest
import tomli_w
from conftest import REPOSITORY, needed_program
from uncertainties import ufloat

import pcitrace
from pcitrace import report, results
from pcitrace.cli import main
from pcitrace.simulate import simulate


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("report") / "run"
    simulate("acenic-fig3.1", place, test__count=45)
    return place


@pytest.fixture(scope="module")
def found(folder: Path) -> results.Results:
    return results.of_run(pcitrace.open(folder))


@pytest.fixture(scope="module")
def page(found: results.Results, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    report.write(found, path)
    return path


def changed(folder: Path, to: Path, change: Any) -> Path:
    """Copy a run folder with another run.toml."""
    shutil.copytree(folder, to)
    run = tomllib.loads((to / "run.toml").read_text())
    change(run)
    (to / "run.toml").write_bytes(tomli_w.dumps(run).encode())
    return to


def text_of(folder: Path) -> str:
    """Return the text of a run's report, without tags."""
    html = report.page(results.of_run(pcitrace.open(folder)))
    html = re.sub(r"(?s)<(script|style).*?</\1>", "", html)
    return " ".join(re.sub(r"<[^>]+>", " ", html).replace("&#39;", "'").replace("&gt;", ">").split())


# --- what it says


def test_numbers_stand_beside_their_definitions(found: results.Results, folder: Path) -> None:
    text = text_of(folder)
    assert re.search(r"Transit of one card.* unknown it depends on the length: 4\.3\d+ us at 64 bytes", text)
    for name, words in (("R_PCI_send_us_per_byte", "Slope of the sending"), ("t_sw_us", "Software of one host")):
        value = " ± ".join(str(found.constants[name]).split("±"))
        assert re.search(rf"{words}[^±]*{re.escape(value)} µs", text), name
    assert "450 of" not in text
    assert "90 of 90" in text


def test_periods_have_their_busy_time_and_their_data_time(found: results.Results, folder: Path) -> None:
    text = text_of(folder)
    told = found.as_dict()["buses"]
    for name in "AB":
        for side in ("send_periods", "receive_periods"):
            one = told[name][side]
            assert one["data_us"] < one["busy_us"]
            basis = (
                f"{one['periods']} periods of {one['period_us']:.2f} µs, of which {one['busy_us']:.2f} µs busy, "
                f"{one['data_us']:.2f} µs with data"
            )
            assert basis in text


def test_page_and_json_say_the_same(found: results.Results, folder: Path) -> None:
    """The number behind ± is sigma of the JSON, and its parts are those of the JSON."""
    text, told = text_of(folder), found.as_dict()
    for name in ("R_PCI_send_us_per_byte", "R_PCI_recv_us_per_byte", "t_sw_us"):
        one = told["constants"][name]
        shown = ufloat(one["value"], one["sigma"])
        assert f"{shown:P}".replace("±", " ± ") in text
        assert f"sigma {one['sigma_measurement']:.2g} (measurement)" in text
        if one["sigma_frames"]:
            assert f"{one['sigma_frames']:.2g} (standard error of the frames)" in text
    for one in told["timing"]["csr_costs_us"]:
        assert f"{one['host']}: {ufloat(one['value'], one['sigma']):P}".replace("±", " ± ") in text


def test_every_finding_is_on_the_page(found: results.Results, folder: Path) -> None:
    assert found.findings
    text = text_of(folder)
    for finding in found.findings:
        assert finding in text


def test_simulated_is_said_on_page_and_figures(page: Path) -> None:
    html = page.read_text()
    assert '<span class="badge">SIMULATED</span>' in html
    assert "(simulated)</title>" in html
    assert html.count("simulated</text>") == html.count("<svg")
    assert 'data-mark="simulated"' in html


def test_captured_is_not_called_simulated(folder: Path, tmp_path: Path) -> None:
    def captured(run: dict[str, Any]) -> None:
        run["origin"] = "captured"
        del run["simulation"]

    html = report.page(results.of_run(pcitrace.open(changed(folder, tmp_path / "run", captured))))
    assert "simulated</text>" not in html
    assert "SIMULATED" not in html


def test_page_stands_alone(page: Path) -> None:
    html = page.read_text()
    assert not re.findall(r"<link|<img|<iframe|\ssrc=|@import|url\((?!#)", html)
    places = {one for one in re.findall(r"https?://[^\s\"'<)]+", html) if "www.w3.org" not in one}
    assert not places
    assert len(html) < 2_000_000


def test_provenance(page: Path, folder: Path) -> None:
    html = page.read_text()
    run = tomllib.loads((folder / "run.toml").read_text())
    assert f"{run['captures'][0]['sha256']} (as run.toml says)" in html
    assert pcitrace.__version__ in html
    assert "R_PCI_recv_us_per_byte = 0.00792" in html


def test_a_file_that_changed_is_called_so(folder: Path, tmp_path: Path) -> None:
    def other(run: dict[str, Any]) -> None:
        run["captures"][0]["sha256"] = "0" * 64

    assert "CHANGED" in text_of(changed(folder, tmp_path / "run", other))


def test_text_from_files_cannot_become_markup(folder: Path, tmp_path: Path) -> None:
    def named(run: dict[str, Any]) -> None:
        run["title"] = "<script>alert(1)</script>"

    html = report.page(results.of_run(pcitrace.open(changed(folder, tmp_path / "run", named))))
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert" in html


# --- runs that tell little


def test_one_host_and_incomplete(folder: Path, tmp_path: Path) -> None:
    def alone(run: dict[str, Any]) -> None:
        del run["hosts"]["B"], run["latency"]
        run["frame_logs"] = [log for log in run["frame_logs"] if log["host"] == "A"]
        run |= {"complete": False, "reason": "the analyser ran out of memory"}

    text = text_of(changed(folder, tmp_path / "run", alone))
    assert "Incomplete: the analyser ran out of memory." in text
    assert "One host: what the other bus would tell" in text
    assert "No frame was seen on both buses." in text
    assert re.search(r"CSR to DMA .* A: 5\.0\d* ± ", text)
    assert re.search(r"burst rate, sending .* 0\.00757\d* ± ", text)


def test_no_frames(tmp_path: Path) -> None:
    trace = REPOSITORY / "fixtures/traces/blue33_seq6/ctl_250MSs.sr"
    shutil.copy(trace, tmp_path)
    (tmp_path / "run.toml").write_text(
        'format = 1\norigin = "simulated"\n[simulation]\npreset = "pci_blue_interface"\n[[captures]]\n'
        f'file = "{trace.name}"\n[hosts.A]\nbus = "PCI"\nnic_grant = "GNT2#"\n'
    )
    text = text_of(tmp_path)
    assert "No frame was found on the buses" in text
    assert "the rate of the link is not known" in text
    occupancy = pcitrace.open(tmp_path)["A"].clocks()["occupancy"].iloc[0]
    assert f"A: {100 * occupancy:.3g} %" in text


def test_replayed_logs_stand_beside_the_trace(folder: Path, tmp_path: Path) -> None:
    def replayed(run: dict[str, Any]) -> None:
        del run["latency"], run["simulation"]
        run |= {"origin": "replayed", "frames_on_bus": False, "source": "x.sr", "source_origin": "simulated"}
        run["source_sha256"] = "0" * 64

    place = changed(folder, tmp_path / "run", replayed)
    text = text_of(place)
    assert "Replayed: the bus traffic is that of x.sr (simulated)" in text
    assert "These frames are not those on the bus." in text
    assert "Simulated: no real bus stands behind these numbers." in text
    assert set(pcitrace.open(place).frames.table["sequence_source"]) == {"order"}


# --- the command


def test_json_has_the_agreed_keys(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(folder), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    for name in ("t_nic_us", "R_PCI_send_us_per_byte", "R_PCI_recv_us_per_byte", "t_sw_us"):
        assert {"value", "sigma", "n", "source"} <= set(told["constants"][name])
    assert {"occupancy", "data_occupancy", "transactions", "window_us"} <= set(told["buses"]["A"])
    assert {"matched", "dropped"} <= set(told["frames"])
    assert {"intercept_us", "slope_us_per_byte"} <= set(told["model"])
    assert isinstance(told["findings"], list)


def test_report_and_json_at_once(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(folder), "-o", str(tmp_path / "r.html"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["frames"]["matched"] == 90
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")


def test_neither_page_nor_json_is_wrong_usage(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(folder)]) == 2
    assert capsys.readouterr().err == "pcitrace report: give -o REPORT.html, --json, or both\n"


def test_without_matplotlib_json_works_and_the_page_says_what_to_install(folder: Path, tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['matplotlib'] = None; from pcitrace.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", program, "report", str(folder)]
    assert subprocess.run([*command, "--json"], capture_output=True).returncode == 0
    told = subprocess.run([*command, "-o", str(tmp_path / "r.html")], capture_output=True, text=True)
    assert told.returncode == 3
    assert re.fullmatch(r"pcitrace: .* pip install 'pcitrace\[plot\]' .*\n", told.stderr)


# --- in a browser


def browse(page: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Open a page in a real browser without a window."""
    program = needed_program("chromium")
    return subprocess.run(
        [program, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--log-level=0",
         f"--user-data-dir={page.parent / 'profile'}", "--virtual-time-budget=3000", *arguments, page.as_uri()],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def measured(page: Path, tmp_path: Path, width: int) -> dict[str, Any]:
    """Return what a script in the page finds out when the page is that wide."""
    script = """<script>addEventListener("load", () => setTimeout(() => {
      const seen = name => [...document.querySelectorAll(name)].filter(one => one.getClientRects().length).length;
      const pen = document.getElementById("zoom").getContext("2d"), size = document.getElementById("zoom");
      const pixels = pen.getImageData(0, 0, size.width, size.height).data;
      let red = 0, green = 0;
      for (let i = 0; i < pixels.length; i += 4) {
        if (pixels[i] === 192 && pixels[i + 1] === 57) red++;
        if (pixels[i] === 46 && pixels[i + 1] === 139) green++;
      }
      const say = document.createElement("pre");
      say.id = "measured";
      say.textContent = JSON.stringify({inner: innerWidth, scroll: document.documentElement.scrollWidth,
        wide: seen(".wide"), narrow: seen(".narrow"), red, green});
      document.body.append(say);
    }, 300));</script>"""
    copy = tmp_path / f"{width}.html"
    copy.write_text(page.read_text().replace("</body>", script + "</body>"))
    told = browse(copy, f"--window-size={width},900", "--dump-dom")
    assert "CONSOLE" not in told.stderr, told.stderr
    return json.loads(re.search(r'<pre id="measured">(.*?)</pre>', told.stdout)[1])


def test_on_a_wide_screen(page: Path, tmp_path: Path) -> None:
    seen = measured(page, tmp_path, 1200)
    assert seen["scroll"] <= seen["inner"]
    assert seen["wide"] > 5
    assert seen["narrow"] == 0
    assert seen["red"] > 100
    assert seen["green"] > 100


def test_on_a_phone(page: Path, tmp_path: Path) -> None:
    seen = measured(page, tmp_path, 500)
    assert seen["inner"] <= 500
    assert seen["scroll"] <= seen["inner"], "the page is wider than the screen"
    assert seen["narrow"] > 5
    assert seen["wide"] == 0
    assert seen["red"] > 100


def test_in_print(page: Path, tmp_path: Path) -> None:
    paper = tmp_path / "report.pdf"
    browse(page, f"--print-to-pdf={paper}", "--no-pdf-header-footer")
    content = paper.read_bytes()
    assert content.startswith(b"%PDF")
    assert 3 <= len(re.findall(rb"/Type\s*/Page\b", content)) <= 15
