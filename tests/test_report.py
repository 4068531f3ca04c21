"""The report: what it says, what it says of runs that tell little, and how it looks in a real browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("agg")

import pandas as pd
import pytest
import tomli_w
from browser import measured
from conftest import REPOSITORY
from uncertainties import ufloat

import pcitrace
from pcitrace import report, results
from pcitrace.cli import main
from pcitrace.estimate import Estimate
from pcitrace.plot.bus import typical
from pcitrace.report.pagekit import micro, told
from pcitrace.report.passage import CSR_COSTS
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


@pytest.fixture(scope="module")
def altered(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of a run that says of itself that it was captured, of a file that changed, under a hostile title."""

    def change(run: dict[str, Any]) -> None:
        run["origin"] = "captured"
        del run["simulation"]
        run["captures"][0]["sha256"] = "0" * 64
        run["title"] = "<script>alert(1)</script>"

    place = changed(folder, tmp_path_factory.mktemp("altered") / "run", change)
    return report.page(results.of_run(pcitrace.open(place)))


def changed(folder: Path, to: Path, change: Any) -> Path:
    """Copy a run folder with another run.toml."""
    shutil.copytree(folder, to)
    run = tomllib.loads((to / "run.toml").read_text())
    change(run)
    (to / "run.toml").write_bytes(tomli_w.dumps(run).encode())
    return to


@pytest.fixture(scope="module")
def text(page: Path) -> str:
    return without_tags(page.read_text())


def text_of(folder: Path) -> str:
    """Return the text of a run's report, without tags."""
    return without_tags(report.page(results.of_run(pcitrace.open(folder))))


def without_tags(html: str) -> str:
    html = re.sub(r"(?s)<(script|style).*?</\1>", "", html)
    return " ".join(re.sub(r"<[^>]+>", " ", html).replace("&#39;", "'").replace("&gt;", ">").split())


# --- what it says


def test_numbers_stand_beside_their_definitions(found: results.Results, text: str) -> None:
    assert re.search(r"t_nic 64 bytes 4\.3\d+ ± 0\.00\d+ µs 1500 bytes 4\.1\d+ ± 0\.0\d+ µs Transit of one card", text)
    assert "It depends on the length; a mean would be that of the lengths that were sent." in text
    for name, words in (("R_PCI_send_us_per_byte", "Slope of the sending"), ("t_sw_us", "Software of one host")):
        value = " ± ".join(str(found.constants[name]).split("±"))
        assert re.search(rf"{re.escape(value)} µs(/byte)? {words}", text), name
    assert "450 of" not in text
    assert "90 of 90" in text


def test_periods_have_their_busy_time_and_their_data_time(found: results.Results, text: str) -> None:
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


def test_page_and_json_say_the_same(found: results.Results, text: str) -> None:
    """The number behind ± is sigma of the JSON, and its parts are those of the JSON."""
    told = found.as_dict()
    digits = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
    plain = re.sub("×10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)", lambda raised: f"e{int(raised[1].translate(digits)):+03d}", text)
    for name in ("R_PCI_send_us_per_byte", "R_PCI_recv_us_per_byte", "t_sw_us"):
        one = told["constants"][name]
        shown = ufloat(one["value"], one["sigma"])
        assert f"{shown:P}".replace("±", " ± ") in text
        for sigma, what in ((one["sigma_measurement"], "measurement"), (one["sigma_frames"], "frames")):
            assert not sigma or re.search(rf"{sigma:.2g}( µs(/byte)?)? \({what}\)", plain)
    costs = [one for one in told["timing"]["csr_costs_us"] if one["n"]]
    assert {one["what"] for one in costs} == set(CSR_COSTS)
    for one in costs:
        assert f"{one['host']} {ufloat(one['value'], one['sigma']):P}".replace("±", " ± ") in text


def test_what_a_number_rests_on_has_its_unit() -> None:
    """Once, with the last number, whichever that is."""
    whole = Estimate(1.0, 5e-8, 3, sigma_frames=2e-6, scatter=0.03)
    assert told(whole, "µs/byte").basis == (
        "measured, n = 3; sigma 5×10⁻⁸ (measurement), 2×10⁻⁶ (frames), scatter 0.03 µs/byte"
    )
    assert told(replace(whole, scatter=None), "µs").basis.endswith("sigma 5×10⁻⁸ (measurement), 2×10⁻⁶ µs (frames)")
    assert told(Estimate(1.0, 0.1, 3), "µs").basis == "measured, n = 3; sigma 0.1 µs (measurement)"
    assert told(Estimate(1.0, 0.0, 0, "given"), "µs").basis == "given, n = 0"


def test_the_times_of_figure_3_1_are_told(found: results.Results, page: Path) -> None:
    """The note's 12 µs for a send of 600 ns of data, and the queue's update 6.6 µs after the CSR access."""
    costs = found.timing.csr_costs.set_index(["host", "what"])["value"]
    assert costs["A", "send_whole"] == pytest.approx(12.5, abs=0.2)
    assert costs["A", "csr_to_queue"] == pytest.approx(6.6, abs=0.05)
    assert pd.isna(costs["B", "csr_to_queue"]), "its CPU is in the send of the reply then"
    table = found.frames.table
    row = table.set_index("frame").loc[typical(found.run, table)]
    drawn = page.read_text()
    assert f"{row['csr_done_us'] - row['csr_first_us']:.1f} µs" in drawn
    assert re.search(r">6\.6\d?</text>", drawn)


def test_every_finding_is_on_the_page(found: results.Results, text: str) -> None:
    assert found.findings
    for finding in found.findings:
        assert micro(finding) in text
    assert not re.search(r"[\d(] ?us\b|us/byte", text), "µ everywhere"


def test_simulated_is_said_on_page_and_figures(page: Path) -> None:
    html = page.read_text()
    assert '<span class="badge">SIMULATED</span>' in html
    assert "(simulated)</title>" in html
    assert html.count("simulated</text>") == html.count("<svg")
    assert "SIMULATED" in html


def test_captured_is_not_called_simulated(altered: str) -> None:
    assert "simulated</text>" not in altered
    assert '<span class="badge">' not in altered
    assert '"simulated":false' in altered


def test_page_stands_alone(page: Path) -> None:
    html = page.read_text()
    assert re.findall(r"<link[^>]*>", html) == ['<link rel="icon" href="data:,">']
    assert not re.findall(r"<img|<iframe|\ssrc=|@import|url\((?!#)", html)
    places = {one for one in re.findall(r"https?://[^\s\"'<)]+", html) if "www.w3.org" not in one}
    assert not places
    assert len(html) < 1_500_000


def test_provenance(page: Path, folder: Path) -> None:
    html = page.read_text()
    run = tomllib.loads((folder / "run.toml").read_text())
    assert f"{run['captures'][0]['sha256']} (as run.toml says)" in html
    assert pcitrace.__version__ in html
    assert "R_PCI_recv_us_per_byte = 0.00792" in html


def test_a_file_that_changed_is_called_so(altered: str, page: Path) -> None:
    assert "CHANGED" in without_tags(altered)
    assert "CHANGED" not in without_tags(page.read_text())


def test_text_from_files_cannot_become_markup(altered: str) -> None:
    assert "<script>alert" not in altered
    assert "&lt;script&gt;alert" in altered


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
    assert re.search(r"CSR to DMA .* A 5\.0\d* ± ", text)
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
    assert f"A {100 * occupancy:.3g} %" in text


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


def test_another_profile_counts_and_is_said(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(
        'format = 1\nname = "wrong"\ntitle = "another card"\nsources = ["this test"]\n[dma]\nreceive_fcs = true\n'
    )
    told = {}
    for profile in ([], ["--profile", str(wrong)]):
        page = tmp_path / "r.html"
        assert main(["report", str(folder), "-o", str(page), "--json", *profile]) == 0
        told[len(profile)] = without_tags(page.read_text()), json.loads(capsys.readouterr().out)["findings"]
    assert "wrong, instead of acenic as run.toml says" in told[2][0]
    assert "as run.toml says" not in told[0][0].replace("(as run.toml says)", "")
    assert any("receive_fcs" in finding for finding in told[2][1])
    assert not any("receive_fcs" in finding for finding in told[0][1])


def test_windows_take_the_profiles_of_the_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(folder), "--json", "--profile", "generic", "--workers", "2"]) == 2
    assert "put --profile there" in capsys.readouterr().err


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


@pytest.mark.parametrize("command", ["report", "network"])
def test_without_what_fits_need_it_says_what_to_install(command: str, folder: Path, tmp_path: Path) -> None:
    """The frames need no fit; the line through latencies does."""
    program = "import sys; sys.modules['scipy'] = None; from pcitrace.cli import main; sys.exit(main(sys.argv[1:]))"
    told = subprocess.run([sys.executable, "-c", program, command, folder, "--json"], capture_output=True, text=True)
    assert told.returncode == 3
    assert re.fullmatch(r"pcitrace: .*: scipy is not installed: pip install 'pcitrace\[fits\]'\n", told.stderr)
    frames = [sys.executable, "-c", program, "frames", folder, "-o", tmp_path / "frames.csv"]
    assert subprocess.run(frames, capture_output=True).returncode == 0


# --- in a browser


SEEN = """
const done = [], luminance = colour => colour.slice(0, 3).map(one => one / 255)
  .map(one => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4).reduce((sum, one, n) => sum + one * [0.2126, 0.7152, 0.0722][n], 0);
const colourOf = text => text.match(/[\\d.]+/g).map(Number);
const groundOf = one => {
  for (; one; one = one.parentElement) {
    const colour = colourOf(one.ownerDocument.defaultView.getComputedStyle(one).backgroundColor);
    if (colour.length === 3 || colour[3] > 0) return colour;
  }
  return [255, 255, 255];
};
for (const frame of document.querySelectorAll("iframe")) {
  const inside = frame.contentWindow, body = inside.document, out = { width: inside.innerWidth };
  const seen = one => one.getClientRects().length > 0, all = name => [...body.querySelectorAll(name)].filter(seen);
  await inside.openView();
  await new Promise(then => setTimeout(then, 500));
  out.scroll = body.documentElement.scrollWidth;
  out.wider = all("main *").filter(one => one.getBoundingClientRect().right > inside.innerWidth + 1).map(one => one.outerHTML.slice(0, 120));
  out.cut = all(".scroll").filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.getAttribute("aria-label"));
  out.overlaps = [];
  for (const picture of all("figure svg")) {
    const texts = [...picture.querySelectorAll("text")].map(one => [one.textContent.trim(), one.getBoundingClientRect()]);
    texts.forEach(([text, box], n) => texts.slice(0, n).forEach(([other, its]) => {
      const wide = Math.min(box.right, its.right) - Math.max(box.left, its.left), high = Math.min(box.bottom, its.bottom) - Math.max(box.top, its.top);
      if (wide > 1 && high > 0.3 * Math.min(box.height, its.height)) out.overlaps.push([text, other]);
    }));
  }
  out.pale = [];
  for (const one of all("main *, nav *")) {
    if (![...one.childNodes].some(node => node.nodeType === 3 && node.textContent.trim()) || one.closest("#view")) continue;
    const style = inside.getComputedStyle(one), text = colourOf(one.closest("svg") ? style.fill : style.color);
    const [high, low] = [luminance(text), luminance(groundOf(one))].sort((a, b) => b - a);
    if ((high + 0.05) / (low + 0.05) < 4.5) out.pale.push([one.textContent.slice(0, 40), style.color, style.fill]);
  }
  out.dark = luminance(groundOf(body.body)) < 0.2;
  const order = all("a[href], button, input, canvas, summary, [tabindex]");
  out.backwards = order.filter(one => one.tabIndex > 0).length;
  out.stops = order.map(one => one.id || one.className || one.tagName);
  out.links = all("nav a").map(one => Boolean(body.querySelector(one.getAttribute("href"))));
  out.headings = all("section > .keep > h2").length - all(".keep > h2:first-child").length;
  out.view = [body.querySelectorAll("#view canvas").length, body.querySelector("#view .facts").textContent];
  out.shown = [all(".wide").length, all(".narrow").length];
  out.left = all("td.number").filter(one => inside.getComputedStyle(one).textAlign !== "right").length;
  done.push(out);
}
return done;
"""
"""What a reader of each width finds: nothing wider than the screen, cut, overlapping, pale, or unreachable."""

SETTLED = """
for (const frame of document.querySelectorAll("iframe")) {
  for (let tries = 0; tries < 100 && !frame.contentWindow?.openView; tries++) await new Promise(then => setTimeout(then, 100));
}
"""


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_on_wide_screens_and_on_phones(mode: str, page: Path, tmp_path: Path) -> None:
    outer = tmp_path / "outer.html"
    frames = "".join(f'<iframe src="{page.as_uri()}" width={width} height=900></iframe>' for width in (1300, 360))
    outer.write_text(f"<!doctype html><meta charset=utf-8><body>{frames}</body>")
    scheme = f"--blink-settings=preferredColorScheme={0 if mode == 'dark' else 1}"
    wide, phone = measured(outer, tmp_path, SETTLED + SEEN, scheme, "--allow-file-access-from-files")
    assert (wide["width"], phone["width"]) == (1300, 360)
    for seen in (wide, phone):
        assert seen["scroll"] <= seen["width"], "the page is wider than the screen"
        assert seen["wider"] == []
        assert seen["cut"] == []
        assert seen["overlaps"] == []
        assert seen["pale"] == []
        assert seen["dark"] is (mode == "dark")
        assert seen["backwards"] == 0, "the tab key goes in the order of the page"
        assert seen["stops"][:2] == ["A", "A"], "the contents list comes first"
        assert seen["links"]
        assert all(seen["links"])
        assert seen["left"] == 0
        assert seen["view"][0] == 1
        assert "90 frames" in seen["view"][1]
        assert seen["headings"] == 0
    assert wide["shown"][0] == 3
    assert wide["shown"][1] == 4
    assert phone["shown"] == [0, 7]


def test_the_view_costs_nothing_until_it_is_looked_at(page: Path, tmp_path: Path) -> None:
    seen = measured(page, tmp_path, """
      const before = [Boolean(window.pcitraceShow), document.querySelectorAll("#view canvas").length];
      document.getElementById("open").click();
      await window.openView();
      return [before, document.querySelectorAll("#view canvas").length];
    """, "--window-size=1200,700")  # fmt: skip
    assert seen == [[False, 0], 1]


def test_as_pdf(found: results.Results, tmp_path: Path) -> None:
    """At most five pages, as printed from the page."""
    paper = tmp_path / "report.pdf"
    report.write(found, paper)
    content = paper.read_bytes()
    assert content.startswith(b"%PDF")
    assert 3 <= len(re.findall(rb"/Type\s*/Page\b", content)) <= 5


def test_without_a_browser_it_says_what_a_pdf_needs(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["report", str(folder), "-o", str(tmp_path / "r.pdf")]) == 3
    said = capsys.readouterr().err
    assert said.startswith(
        f"pcitrace: {tmp_path}/r.pdf: a PDF is printed by Chromium or Chrome, and none is on the PATH"
    )
    assert "apt install chromium" in said
    assert "-o report.html" in said
    assert not (tmp_path / "r.pdf").exists()
