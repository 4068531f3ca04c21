"""The interactive view in a real browser: its rows are those of the tables, and what people do has its effect."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import rule_traffic
import waveforms
from browser import browse, measured, told

import pcitrace
from pcitrace import view
from pcitrace.cli import main
from pcitrace.export import FORMATS
from pcitrace.simulate import simulate
from pcitrace.view.bundle import asset, script
from pcitrace.view.contents import contents

TRACE = Path(__file__).parent.parent / "fixtures" / "traces" / "blue33_seq6" / "bus.vcd.gz"

# Waits until the view is there.
READY = "const view = await window.pcitraceView; await new Promise(done => setTimeout(done, 300));"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("view")
    simulate("acenic-fig3.1", folder / "run", values={"test.count": 18})
    return folder / "run"


@pytest.fixture(scope="module")
def page(folder: Path) -> Path:
    view.write(pcitrace.open(folder), folder.parent / "view.html")
    return folder.parent / "view.html"


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bare") / "view.html"
    view.write(pcitrace.open(TRACE), path)
    return path


def shown(value: Any) -> Any:
    """A value as the page is asked to say it: whole numbers as text, so that none is rounded."""
    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool | str):
        return value
    return str(value) if isinstance(value, int) else float(value)


def same_rows(told_rows: list[list[Any]], frame: pd.DataFrame) -> None:
    expected = [[shown(value) for value in column] for column in (frame[name].tolist() for name in frame.columns)]
    for name, found, wanted in zip(frame.columns, told_rows, expected, strict=True):
        assert len(found) == len(wanted), name
        for row, (one, other) in enumerate(zip(found, wanted, strict=True)):
            if isinstance(other, float):
                assert float(one) == pytest.approx(other, rel=1e-12, abs=1e-9), (name, row)
            else:
                assert one == other, (name, row)


DUMP = """
  const say = value => typeof value === "bigint" || (typeof value === "number" && Number.isInteger(value)) ? String(value) : value;
  const dump = (table, names) => names.map(name => Array.from({length: table.n}, (_, row) => say(table.value(name, row))));
"""


@pytest.mark.parametrize("which", ["run", "bare"])
def test_the_rows_of_the_page_are_those_of_the_tables(
    which: str, page: Path, bare: Path, folder: Path, tmp_path: Path
) -> None:
    run = pcitrace.open(folder if which == "run" else TRACE)
    tables: dict[tuple[str, str], pd.DataFrame] = {}
    for name in run.buses:
        bus = run[name]
        tables[name, "transactions"] = bus.transactions.drop(columns=["bus"])
        tables[name, "problems"] = bus.problems.drop(columns=["bus"])
        if which == "run":
            traffic = run.frames.hosts[name]
            tables[name, "bursts"] = traffic.bursts.drop(columns=["bus"])
            tables[name, "csr_accesses"] = traffic.csr_accesses.drop(columns=["bus"])
    if which == "run":
        tables["", "frames"] = run.frames.table
    wanted = json.dumps([[bus, table, list(frame.columns)] for (bus, table), frame in tables.items()])
    found = measured(page if which == "run" else bare, tmp_path, f"""
      {READY} {DUMP}
      return {wanted}.map(([bus, name, columns]) =>
        dump(bus ? view.buses.find(one => one.name === bus).tables.get(name) : view.frames, columns));
    """)  # fmt: skip
    for rows, frame in zip(found, tables.values(), strict=True):
        same_rows(rows, frame)


def test_the_waveforms_are_the_lines_of_the_capture(folder: Path, page: Path, tmp_path: Path) -> None:
    """Each line's level at every sample, from the page, is the bit of that sample."""
    run = pcitrace.open(folder)
    bus = run["A"]
    samples = bus.capture.samples()
    wiring = bus.capture.wiring.bus("A")
    found = measured(page, tmp_path, f"""
      {READY}
      return view.made[0].filter(lane => lane.levels).map(lane =>
        [lane.label, Array.from(lane.changes, time => Math.round(time / view.buses[0].about.us_per_sample)), Array.from(lane.levels)]);
    """)  # fmt: skip
    assert {name for name, _, _ in found} >= {"FRAME#", "IRDY#", "TRDY#", "DEVSEL#", "STOP#"}
    for name, changes, levels in found:
        line = wiring.lines[name]
        bit = samples[:, line.channel // 8] >> line.channel % 8 & 1
        edges = [0, *((bit[1:] != bit[:-1]).nonzero()[0] + 1).tolist()]
        assert changes == edges, name
        assert levels == bit[edges].tolist(), name


def test_the_overview_is_what_rows_and_lines_say(page: Path, tmp_path: Path) -> None:
    """At the ends of its bins as much time is covered; lines are in each bin, of each length, what their changes say."""
    found = measured(page, tmp_path, f"""
      {READY}
      const wrong = [];
      let seen = 0;
      view.made.forEach((lanes, bus) => {{
        const {{ coverage, spans }} = lanes.find(lane => lane.coverage && lane.table);
        const one = new Float64Array(coverage.kinds), two = new Float64Array(coverage.kinds);
        for (let bin = 0; bin <= coverage.bins; bin++) {{
          const time = coverage.low + bin * coverage.step;
          coverage.covered(time, one);
          spans.covered(time, two);
          // Each bin is rounded up.
          one.forEach((sum, kind) => {{ if (sum - two[kind] < -1e-6 || sum - two[kind] > bin * coverage.step / 65535 + 1e-6) wrong.push([bus, bin, kind, sum, two[kind]]); }});
          if (bin === coverage.bins) seen += two.reduce((sum, kind) => sum + kind, 0) > 0;
        }}
        for (const lane of lanes.filter(lane => lane.levels)) {{
          const {{ low, step, bins, states }} = lane.overview, at = time => {{
            let row = 0;
            while (row < lane.changes.length && lane.changes[row] <= time + 1e-9) row++;
            return row;
          }};
          for (let wide = 1, from = 0; wide <= bins; from += bins / wide, wide *= 2) {{
            for (let bin = 0; bin < bins / wide; bin += 1 + Math.floor(bins / wide / 40)) {{
              const begin = low + bin * wide * step, first = at(begin), last = at(begin + wide * step - 2e-9);
              const wanted = first === last ? lane.levels[first - 1] : 3;
              seen += wanted === 3;
              if (states[from + bin] !== wanted) wrong.push([lane.label, wide, bin, states[from + bin], wanted]);
            }}
          }}
          const beyond = [lane.overview.between(low - 2, low - 1), lane.overview.between(low + bins * step + 1, low + bins * step + 2)];
          if (beyond.some(level => level !== 2)) wrong.push([lane.label, beyond]);
        }}
      }});
      return [wrong.slice(0, 5), seen];
    """)  # fmt: skip
    assert found[0] == []
    assert found[1] > 100


def test_lines_are_seen_beyond_the_transactions(tmp_path: Path) -> None:
    """Such as an interrupt long after the last one; without lines there is nothing to see there."""
    traffic = rule_traffic.Traffic()
    for number in range(8):
        traffic.put(f"read {number}", 0x6, 0x1000 + 4 * number, gap=9)
    clocks = traffic.finish()
    idle = clocks[-1]
    samples = rule_traffic.sampled([idle] * 300 + clocks + [idle] * 500)
    capture = pcitrace.open(waveforms.write_sr(tmp_path / "x.sr", samples), clock_mhz=33.0)
    about, _ = contents(capture)
    [overview] = [bus["overview"] for bus in about["buses"]]
    assert (overview["first"], overview["last"]) == (0, capture.bus.capture.sample_count)
    without, _ = contents(capture, lines=False)
    [overview] = [bus["overview"] for bus in without["buses"]]
    rows = capture.bus.transactions
    assert (overview["first"], overview["last"]) == (rows["start_sample"].min(), rows["end_sample"].max() + 1)


def test_a_picture_is_there_before_the_rows(tmp_path: Path) -> None:
    """The overview alone is drawn as it is with all rows; what needs rows says that they come, and comes."""
    about, packed = contents(pcitrace.open(TRACE))
    found = told(tmp_path, script(), f"""
      const home = document.createElement("div"), style = document.createElement("style"), store = new Store({json.dumps(packed)});
      style.textContent = {json.dumps(asset("view.css"))};
      document.body.append(home, style);
      await store.unpackNext();
      const view = new View(home, {json.dumps(about)}, store), lane = view.lanes.find(one => one.lane.label === "pci bus");
      const picture = () => {{
        view.resize();
        view.paint();
        const scale = devicePixelRatio, pen = view.canvas.getContext("2d");
        return [...pen.getImageData(view.axis.left * scale, lane.top * scale, (view.axis.right - view.axis.left) * scale, lane.lane.height * scale).data];
      }};
      const out = {{}}, whole = picture();
      out.inked = whole.filter((value, n) => n % 4 === 3 && value).length;
      view.choose({{ bus: 0, table: "transactions", row: 3 }});
      view.search("bytes > 4");
      out.said = [view.panel.textContent, view.told.textContent];
      out.hit = view.under(view.axis.left + 50, lane.top + 5);
      view.choose(null);
      view.search("");
      await view.load();
      const after = picture();
      out.different = after.filter((value, n) => n % 4 === 3 && Boolean(value) !== Boolean(whole[n])).length;
      view.search("bytes > 4");
      out.found = view.found.length > 0;
      return out;
    """)  # fmt: skip
    assert found["inked"] > 1000
    assert found["said"] == ["Its columns are still being unpacked.", "still unpacking"]
    assert found["hit"] is None
    assert found["different"] == 0
    assert found["found"]


@pytest.mark.parametrize(
    "text",
    [
        "termination != completion",
        "clocks > 4 and data_phases >= 1",
        "start_us < 300 or command == memory_write",
        "bytes is None",
    ],
)
def test_a_search_finds_what_python_finds(text: str, bare: Path, tmp_path: Path) -> None:
    found = measured(
        bare,
        tmp_path,
        f"{READY} view.search({json.dumps(text)}); return [view.found.map(one => one[1]), view.told.textContent];",
    )
    rows = pcitrace.open(TRACE).bus.where(text)["transaction"].tolist()
    assert found == [rows, f"{len(rows):,} found"]


def test_a_search_with_a_mistake_says_where(bare: Path, tmp_path: Path) -> None:
    found = measured(bare, tmp_path, f"{READY} view.search('byte > 4'); return [view.found, view.told.textContent];")
    assert found[0] == []
    assert found[1].startswith("at character 1, byte: there is no column byte; the nearest: bytes,")


def test_clicks_choose_the_row_that_is_drawn_there(bare: Path, tmp_path: Path) -> None:
    found = measured(bare, tmp_path, f"""
      {READY}
      const lane = view.lanes.find(one => one.lane.label === "pci bus"), wrong = [];
      for (let row = 0; row < view.buses[0].transactions.n; row += 97) {{
        const [from, to] = view.timeOf({{bus: 0, table: "transactions", row}});
        view.axis.show(from - 0.5, to + 0.5);
        const kind = lane.lane.spans.kind[row], y = lane.top + (kind === 4 ? 20 : kind % 2 ? 30 : 10);
        const x = view.axis.x((from + to) / 2);
        for (const name of ["pointerdown", "pointerup"]) {{
          const event = new PointerEvent(name, {{pointerId: 1, clientX: x + view.canvas.getBoundingClientRect().left, clientY: y + view.canvas.getBoundingClientRect().top}});
          view.canvas.setPointerCapture = () => {{}};
          view.canvas.dispatchEvent(event);
        }}
        if (view.chosen?.row !== row || view.chosen?.table !== "transactions") wrong.push([row, view.chosen]);
      }}
      return [wrong, view.panel.querySelector("h2").textContent, view.panel.querySelectorAll("dt").length];
    """)  # fmt: skip
    assert found[0] == []
    assert found[1].startswith("pci: transaction ")
    assert found[2] > 25


def test_keys_move_zoom_and_go_from_row_to_row(bare: Path, tmp_path: Path) -> None:
    found = measured(bare, tmp_path, f"""
      {READY}
      const press = (key, more = {{}}) => view.canvas.dispatchEvent(new KeyboardEvent("keydown", {{key, ...more}}));
      const span = () => view.axis.high - view.axis.low, out = {{}};
      const whole = span();
      press("+"); out.closer = Math.round(1e6 * span() / whole) / 1e6;
      press("-"); out.wider = Math.round(1e6 * span() / whole) / 1e6;
      press("+"); press("+"); const low = view.axis.low; press("ArrowRight"); out.right = view.axis.low > low;
      press("ArrowLeft"); out.back = Math.abs(view.axis.low - low) < 1e-6;
      press("0"); out.all = Math.round(1e6 * span() / whole) / 1e6;
      press("n"); out.first = view.chosen.row; press("n"); out.next = view.chosen.row; press("p"); out.last = view.chosen.row;
      press("m"); out.markers = view.markers.length; press("m"); out.none = view.markers.length;
      const lines = view.lanes.length; press("l"); out.lines = view.lanes.length < lines;
      press("Escape"); out.chosen = view.chosen;
      return out;
    """)  # fmt: skip
    assert found == {
        "closer": 0.5, "wider": 1, "right": True, "back": True, "all": 1, "first": 0, "next": 1, "last": 0,
        "markers": 1, "none": 0, "lines": True, "chosen": None,
    }  # fmt: skip


def test_tab_goes_from_control_to_control_as_they_are_seen(page: Path, tmp_path: Path) -> None:
    """Each has a name, none is taken out of its order, and none stands above the one before it."""
    found = measured(page, tmp_path, f"""
      {READY}
      view.choose({{bus: 0, table: "transactions", row: 20}});
      const controls = [...document.querySelectorAll("a[href], button, input, summary, [tabindex]")].filter(one => one.offsetParent);
      const name = one => one.getAttribute("aria-label") ?? one.textContent.trim(), box = one => one.getBoundingClientRect();
      return [controls.length, controls.filter(one => !name(one) || one.tabIndex !== 0).map(one => one.outerHTML),
        controls.slice(1).filter((one, n) => box(one).bottom <= box(controls[n]).top).map(name)];
    """)  # fmt: skip
    assert found[0] >= 11
    assert found[1:] == [[], []]


def test_the_address_keeps_the_place_the_choice_the_search_and_the_markers(bare: Path, tmp_path: Path) -> None:
    place = "#t=200.0000,210.0000&s=0,transactions,700&q=bytes%20%3E%204&m=203.0000,204.5000"
    found = measured(bare, tmp_path, f"""
      {READY}
      await new Promise(done => setTimeout(done, 600));
      return [view.axis.low, view.axis.high, view.chosen, view.query.value, view.markers, location.hash];
    """, place=place)  # fmt: skip
    assert found[:5] == [200, 210, {"bus": 0, "table": "transactions", "row": 700}, "bytes > 4", [203, 204.5]]
    assert found[5] == place


def test_links_lead_from_a_transaction_to_its_frame_and_back(page: Path, folder: Path, tmp_path: Path) -> None:
    traffic = pcitrace.open(folder).frames.hosts["A"]
    pieces = traffic.pieces.merge(traffic.bursts[["burst", "frame"]], on="burst")
    piece = pieces[pieces["frame"].notna()].iloc[0]
    found = measured(page, tmp_path, f"""
      {READY}
      const press = text => [...view.panel.querySelectorAll("button")].find(one => one.textContent.startsWith(text)).click();
      view.choose({{bus: 0, table: "transactions", row: {int(piece["transaction"])}}});
      const way = [];
      for (const text of ["DMA burst", "frame", "send burst", "its first"]) {{ press(text); way.push([view.chosen.table, view.chosen.row]); }}
      return way;
    """)  # fmt: skip
    assert found[0] == ["bursts", int(piece["burst"])]
    assert found[1] == ["frames", int(piece["frame"])]
    sent = pcitrace.open(folder).frames.table.iloc[int(piece["frame"])]
    assert found[2] == ["bursts", int(sent["send_burst"])]
    assert found[3] == [
        "transactions",
        int(traffic.pieces.query(f"burst == {int(sent['send_burst'])}")["transaction"].iloc[0]),
    ]


def test_links_lead_from_a_register_access_to_its_attempts_and_back(page: Path, folder: Path, tmp_path: Path) -> None:
    """Each access leads to the transaction that begins with its first attempt, and that leads back."""
    run = pcitrace.open(folder)
    accesses, rows = run.frames.hosts["A"].csr_accesses, run["A"].transactions
    begun = [int(rows.index[(rows["start_us"] - time).abs() < 1e-6][0]) for time in accesses["first_attempt_us"]]
    found = measured(page, tmp_path, f"""
      {READY}
      const press = text => [...view.panel.querySelectorAll("button")].find(one => one.textContent.startsWith(text)).click();
      return Array.from({{length: {len(begun)}}}, (_, row) => {{
        view.choose({{bus: 0, table: "csr_accesses", row}});
        press("its transaction");
        const way = [view.chosen.table, view.chosen.row];
        press("register access");
        return [...way, view.chosen.table, view.chosen.row];
      }});
    """)  # fmt: skip
    assert len(begun) > 50
    assert found == [["transactions", of, "csr_accesses", row] for row, of in enumerate(begun)]


def test_data_words_are_on_the_page_where_they_were_asked_for(tmp_path: Path) -> None:
    """In the panel of each transaction, and as a lane of their own: each in the clock that ends where it moved."""
    run = pcitrace.open(TRACE)
    view.write(run, tmp_path / "data.html", data=True)
    phases = run.bus.data_phases
    longest = int(phases["transaction"].value_counts().idxmax())
    row = 7 * len(phases) // 8
    found = measured(tmp_path / "data.html", tmp_path, f"""
      {READY} {DUMP}
      const table = view.buses[0].tables.get("data_phases"), {{ lane, top }} = view.lanes.find(one => one.lane.label === "pci data");
      view.choose({{bus: 0, table: "transactions", row: {longest}}});
      const words = [...view.panel.querySelectorAll(".words li")].map(one => one.textContent);
      const time = (lane.spans.start[{row}] + lane.spans.end[{row}]) / 2;
      view.axis.show(time - 0.1, time + 0.1);
      const hit = [0.25, 0.75].map(share => view.under(view.axis.x(time), top + share * lane.height));
      view.choose({{bus: 0, table: "data_phases", row: {row}}});
      [...view.panel.querySelectorAll("button")].find(one => one.textContent === "its transaction").click();
      return [dump(table, ["transaction", "time_us", "data", "byte_enables", "parity_ok"]), words, hit[0], lane.text({row}), view.chosen, lane.spans.end[{row}] - lane.spans.start[{row}]];
    """)  # fmt: skip
    same_rows(found[0], phases[["transaction", "time_us", "data", "byte_enables", "parity_ok"]])
    of_longest = phases[phases["transaction"] == longest]
    assert len(of_longest) > 2
    assert [text.split()[0] for text in found[1]] == [f"0x{word:08x}" for word in of_longest["data"]]
    assert found[2] == {"bus": 0, "table": "data_phases", "row": row}
    assert found[3] == f"0x{phases['data'][row]:08x}"
    assert found[4] == {"bus": 0, "table": "transactions", "row": int(phases["transaction"][row])}
    assert found[5] == pytest.approx(0.030, rel=0.01)


def test_attempts_are_those_up_to_the_one_that_was_not_retried(bare: Path, tmp_path: Path) -> None:
    """A retried transaction leads to the next of its address, command and initiator: the next attempt."""
    table = pcitrace.open(TRACE).bus.transactions
    keys = table[["address", "command", "initiator"]].astype(str).agg(" ".join, axis=1)
    cases = {}
    for row in table.index[table["termination"] == "retry"]:
        later = keys.index[(keys == keys[row]) & (keys.index >= row)]
        done = later[table.loc[later, "termination"] != "retry"]
        cases[int(row)] = [int(one) for one in later if len(done) == 0 or one <= done[0]]
    assert max(len(attempts) for attempts in cases.values()) > 2
    found = measured(
        bare, tmp_path, f"{READY} return {json.dumps(list(cases))}.map(row => view.buses[0].attempts(row));"
    )
    for (row, expected), attempts in zip(cases.items(), found, strict=True):
        assert attempts[attempts.index(row) :] == expected


@pytest.mark.parametrize("width", [360, 1300])
def test_nothing_is_wider_than_the_screen(width: int, page: Path, tmp_path: Path) -> None:
    """A frame of that width, for no window of Chromium is narrower than 500 pixels."""
    outer = tmp_path / "outer.html"
    outer.write_text(f"""<!doctype html><body><iframe src="{page.as_uri()}" width={width} height=900></iframe>
      <script>setTimeout(() => {{
        const inside = document.querySelector("iframe").contentWindow, body = inside.document;
        const out = document.createElement("pre");
        out.id = "told";
        const wide = [...body.querySelectorAll("main *")].filter(one => one.getBoundingClientRect().right > inside.innerWidth + 1);
        out.textContent = JSON.stringify([inside.innerWidth, body.documentElement.scrollWidth, wide.map(one => one.outerHTML.slice(0, 80))]);
        document.body.append(out);
      }}, 2500)</script>""")
    done = browse(outer.as_uri(), tmp_path / "profile", "--dump-dom", "--allow-file-access-from-files")
    inner, scroll, wide = json.loads(re.search(r'<pre id="told">(.*?)</pre>', done.stdout, re.DOTALL)[1])
    assert inner <= width
    assert scroll <= inner
    assert wide == []


def luminance(colour: str) -> float:
    digits = colour.lstrip("#")
    digits = "".join(2 * one for one in digits) if len(digits) == 3 else digits
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_contrast(mode: str) -> None:
    """WCAG 2.1, 1.4.3 and 1.4.11: text 4.5 to 1, what is drawn 3 to 1."""
    blocks = re.findall(r"\.pcitrace \{ (--[^}]*)", asset("view.css"))
    colours = dict(re.findall(r"--(\w+): (#\w+)", blocks[mode == "dark"]))

    def contrast(one: str, other: str) -> float:
        high, low = sorted((luminance(colours[one]), luminance(colours[other])), reverse=True)
        return (high + 0.05) / (low + 0.05)

    for text in ("ink", "problem"):
        assert contrast(text, "back") >= 4.5
        assert contrast(text, "panel") >= 4.5
    for kind in ("read", "write", "other", "plain", "wire"):
        assert contrast(kind, "back") >= 3, kind
        assert contrast(kind, "onBar") >= 3, kind


def test_what_is_drawn_is_seen(bare: Path, tmp_path: Path) -> None:
    """Reads are above writes: the rows of a lane's halves in their colours, and a triangle for a problem."""
    found = measured(bare, tmp_path, f"""
      {READY}
      const count = (top, height, colour) => {{
        const scale = devicePixelRatio, pen = view.canvas.getContext("2d");
        const [r, g, b] = [1, 3, 5].map(at => parseInt(colour.slice(at, at + 2), 16));
        const pixels = pen.getImageData(view.axis.left * scale, top * scale, (view.axis.right - view.axis.left) * scale, height * scale).data;
        let n = 0;
        for (let i = 0; i < pixels.length; i += 4) if (pixels[i] === r && pixels[i + 1] === g && pixels[i + 2] === b) n++;
        return n;
      }};
      const colour = name => getComputedStyle(view.home).getPropertyValue("--" + name).trim();
      view.paint();
      const lane = view.lanes.find(one => one.lane.label === "pci bus"), problems = view.lanes.find(one => one.lane.label === "pci problems");
      return [count(lane.top, 19, colour("read")), count(lane.top, 19, colour("write")), count(lane.top + 21, 19, colour("write")),
        count(lane.top + 21, 19, colour("read")), count(problems.top, 14, colour("problem"))];
    """)  # fmt: skip
    assert found[0] > 100
    assert found[1] == 0
    assert found[2] > 100
    assert found[3] == 0
    assert found[4] > 100


def test_bars_say_what_they_are_where_there_is_room(bare: Path, tmp_path: Path) -> None:
    """All of it, or its beginning; never beyond the bar."""
    found = measured(bare, tmp_path, f"""
      {READY}
      const {{ lane }} = view.lanes.find(one => one.lane.label === "pci bus"), {{ axis }} = view, silent = [], beyond = [];
      let whole = 0, cut = 0;
      for (let row = 40; row < view.buses[0].transactions.n; row += 397) for (const span of [0.4, 1, 2]) {{
        const [from, to] = view.timeOf({{bus: 0, table: "transactions", row}}), said = [];
        axis.show((from + to - span) / 2, (from + to + span) / 2);
        const pen = view.canvas.getContext("2d");
        pen.fillText = (text, x) => said.push([text, x, pen.measureText(text).width]);
        view.paint();
        delete pen.fillText;
        const [left, right] = [from, to].map(time => axis.x(time)), text = lane.text(row);
        const inside = said.find(([one, x]) => Math.abs(x - Math.max(left, axis.left) - 3) < 1e-6 && text.startsWith(one.replace("…", "")));
        if (!inside) {{ if (right - left > 50) silent.push([row, right - left]); continue; }}
        if (inside[1] + inside[2] > right) beyond.push(row);
        if (inside[0] === text) whole++;
        else cut++;
      }}
      return [silent, beyond, whole, cut];
    """)  # fmt: skip
    assert found[:2] == [[], []]
    assert min(found[2:]) > 3


def test_no_span_that_touches_a_time_is_missed(tmp_path: Path) -> None:
    program = """
      let state = 7;
      const random = () => (state = (state * 1103515245 + 12345) % 2147483648) / 2147483648;
      const worst = [];
      for (let round = 0; round < 20; round++) {
        const n = 1 + Math.floor(random() * 400), start = new Float64Array(n), end = new Float64Array(n), kind = new Uint8Array(n);
        let time = 0;
        for (let row = 0; row < n; row++) {
          time += random() * 3;
          start[row] = time; end[row] = time + random() * (row % 50 === 7 ? 300 : 4); kind[row] = Math.floor(random() * 3);
        }
        const spans = new Spans(start, end, kind, 3);
        for (let probe = 0; probe < 60; probe++) {
          const at = random() * (time + 10) - 5, until = at + random() * 50;
          const [from, to] = spans.range(at, until);
          for (let row = 0; row < n; row++) {
            const touches = start[row] < until && end[row] >= at;
            if (touches && (row < from || row >= to)) worst.push(["range", round, row]);
          }
          if (from < n && from < to && !(start[from] < until && end[from] >= at)) worst.push(["wide", round, from, to]);
        }
      }
      return worst;
    """
    assert told(tmp_path, script(), program) == []


def test_spans_cover_what_a_slow_sum_says(tmp_path: Path) -> None:
    program = """
      let state = 11;
      const random = () => (state = (state * 1103515245 + 12345) % 2147483648) / 2147483648;
      const wrong = [];
      for (let round = 0; round < 20; round++) {
        const n = 1 + Math.floor(random() * 400), start = new Float64Array(n), end = new Float64Array(n), kind = new Uint8Array(n);
        let time = 0;
        for (let row = 0; row < n; row++) {
          start[row] = time + random(); end[row] = start[row] + random() * 4; time = end[row]; kind[row] = Math.floor(random() * 3);
        }
        const spans = new Spans(start, end, kind, 3), out = new Float64Array(3);
        for (let probe = 0; probe < 60; probe++) {
          const at = random() * (time + 10) - 5, slow = [0, 0, 0];
          for (let row = 0; row < n; row++) slow[kind[row]] += Math.max(Math.min(end[row], at) - start[row], 0);
          spans.covered(at, out);
          slow.forEach((sum, one) => { if (!(Math.abs(sum - out[one]) < 1e-9)) wrong.push([round, at, one, sum, out[one]]); });
        }
      }
      return wrong;
    """
    assert told(tmp_path, script(), program) == []


def test_a_title_cannot_end_the_script(tmp_path: Path) -> None:
    capture = tmp_path / "<script>alert(1)<!--.vcd.gz"
    capture.write_bytes(TRACE.read_bytes())
    page = tmp_path / "view.html"
    view.write(pcitrace.open(capture), page)
    assert measured(page, tmp_path, f"{READY} return view.home.querySelector('h1').textContent;") == capture.name


def test_what_is_not_known_is_said(bare: Path, tmp_path: Path) -> None:
    notes = measured(bare, tmp_path, f"{READY} return view.about.notes;")
    assert len(notes) == 1
    assert notes[0].startswith("Not shown: frames, DMA bursts and register accesses. which GNT# is the NIC's?")


def test_in_jupyter_it_is_a_widget_that_draws_itself(folder: Path, tmp_path: Path) -> None:
    """The module that Jupyter loads, given what the widget sends, shows the run."""
    widget = pcitrace.open(folder).view()
    assert repr(widget) == "<View of run>"
    program = f"""
      const el = document.createElement("div"), sent = {json.dumps({"about": widget.about, "packed": widget.packed})};
      document.body.append(el);
      render({{ model: {{ get: name => sent[name] }}, el }});
      await new Promise(done => setTimeout(done, 800));
      return [el.querySelector("h1").textContent, el.querySelectorAll("canvas").length, location.hash];
    """
    module = str(widget._esm).replace("export default { render };", "")
    assert told(tmp_path, module, program) == ["run SIMULATED", 1, ""]


def vcd_of(path: Path, names: list[str]) -> Path:
    """A capture in which a clock runs, and the other lines are high."""
    ids = [chr(33 + number) for number in range(len(names))]
    head = "".join(f"$var wire 1 {one} {name} $end\n" for one, name in zip(ids, names, strict=True))
    edges = "".join(f"#{15 * number}\n{number % 2}!\n" for number in range(1, 200))
    first = "#0\n0!\n" + "".join(f"1{one}\n" for one in ids[1:])
    path.write_text(f"$timescale 1 ns $end\n{head}$enddefinitions $end\n{first}{edges}")
    return path


def test_an_empty_bus_is_said_to_be_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture = vcd_of(tmp_path / "idle.vcd", ["CLK", "FRAME#", "IRDY#", "TRDY#"])
    assert main(["view", str(capture), "-o", str(tmp_path / "idle.html")]) == 0
    found = measured(tmp_path / "idle.html", tmp_path, f"""
      {READY}
      return [view.home.querySelector("details").open, view.home.querySelector("details").textContent, view.axis.high];
    """)  # fmt: skip
    assert found[0]
    assert "On PCI there is no transaction in this capture." in found[1]
    assert found[2] == pytest.approx(15 * 199 / 1000, rel=0.02)
    for to in FORMATS:
        assert main(["export", str(capture), "--to", to, "-o", str(tmp_path / f"out.{to}")]) == 0
        assert "left out: transactions: on PCI there is none in this capture" in capsys.readouterr().err, to


def test_without_a_bus_there_is_no_blank_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture = vcd_of(tmp_path / "nobus.vcd", ["CLK", "IRDY#"])
    assert main(["view", str(capture), "-o", str(tmp_path / "view.html")]) == 3
    assert "FRAME#" in capsys.readouterr().err
    assert not (tmp_path / "view.html").exists()
