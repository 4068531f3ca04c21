"""The interactive view of many transactions: its size, how long it takes to open and to draw, into docs/benchmarks.md.

usage: python benchmarks/view.py [--transactions N] [--times N ...] [--keep PAGE]        needs chromium
The trace is a dense one of `traffic.dense` with jitter: nothing repeats, so nothing packs better than a real one. Of
times each is the least of several openings: others use the machine, too.
"""

from __future__ import annotations

import argparse
import http.server
import json
import os
import queue
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import traffic
from long import PAGE, put

import pcitrace
from pcitrace import view

HEADING = "## The view"
SAMPLES_A_TRANSACTION = 52  # of traffic.dense: about; the page says how many there are

TIMED = """<script type="module">
const tell = what => fetch("told", {method: "POST", body: JSON.stringify(what)});
window.addEventListener("error", event => tell({failed: event.message}));
window.addEventListener("unhandledrejection", event => tell({failed: String(event.reason.stack)}));
const view = await window.pcitraceView;
const opened = view.since;
const draw = () => { const began = performance.now(); view.paint(); return performance.now() - began; };
const whole = view.axis.last - view.axis.first, times = {};
for (const [name, share] of [["everything", 1], ["a tenth", 0.1], ["a fortieth", 0.025], ["a thousandth", 1e-3], ["a clock or so", 1e-6]]) {
  const medians = [];
  for (let round = 0; round < 3; round++) {
    const list = [];
    for (let n = 0; n < 41; n++) {
      const middle = view.axis.first + whole * (0.1 + 0.02 * n);
      view.axis.show(middle - share * whole / 2, middle + share * whole / 2);
      list.push(draw());
    }
    medians.push(list.sort((a, b) => a - b)[20]);
  }
  times[name] = Math.min(...medians);
}
const began = performance.now();
view.search("command is None and bytes > 8");
const search = performance.now() - began;
await tell({opened, times, search, found: view.found.length});
</script></body>"""  # noqa: E501 - JavaScript


def opened_in_chromium(page: Path, profile: Path) -> dict[str, Any]:
    """Open a page in Chromium, in real time, and wait for what its script tells."""
    answers: queue.Queue[dict[str, Any]] = queue.Queue()

    class Told(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(page.parent))

        def do_POST(self) -> None:
            answers.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Told) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = subprocess.Popen(
            ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}",
             "--remote-debugging-port=0", "--window-size=1300,900",
             f"http://127.0.0.1:{server.server_port}/{page.name}"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            told = answers.get(timeout=120)
            if "failed" in told:
                raise RuntimeError(told["failed"])
            return told
        finally:
            browser.terminate()
            browser.wait()
            server.shutdown()


def page_of(transactions: int, lines: bool, openings: int, keep: Path | None) -> str:
    """Write a page of about so many transactions, open it several times; a row of the table."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        samples = traffic.dense(transactions * SAMPLES_A_TRANSACTION, jitter=True)
        traffic.write(folder / "dense.sr", samples.tobytes(), 2, traffic.CHANNELS_DENSE)
        page = folder / "view.html"
        opened = pcitrace.open(folder / "dense.sr")
        began = time.perf_counter()
        view.write(opened, page, lines=lines)
        took = time.perf_counter() - began
        text = page.read_text()
        page.write_text(text.replace("</body>", TIMED))
        told = [opened_in_chromium(page, folder / f"profile{number}") for number in range(openings)]
        if keep is not None and lines:
            shutil.copy(page, keep)
    opened_in, drawn = (
        {part: min(one[what][part] for one in told) for part in told[0][what]} for what in ("opened", "times")
    )
    seconds = ", ".join(f"{opened_in[part] / 1e3:.2f}" for part in ("picture", "details", "all"))
    return (
        f"| {'with control lines' if lines else 'rows alone'} | {len(opened.bus.transactions):,} "
        f"| {len(text) / 1e6:.1f} | {took:.1f} | {seconds} "
        f"| {', '.join(f'{ms:.1f}' for ms in drawn.values())} | {min(one['search'] for one in told):.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transactions", type=int, default=1_000_000)
    parser.add_argument("--openings", type=int, default=3)
    parser.add_argument("-o", "--output", type=Path, default=PAGE)
    parser.add_argument("--times", type=int, nargs="*", default=[10], help="rows alone, so many times more of them")
    parser.add_argument("--keep", type=Path, help="keep the page with its lines")
    args = parser.parse_args()
    pages = [(1, False), (1, True), *((more, False) for more in args.times)]
    rows = [page_of(args.transactions * more, lines, args.openings, args.keep) for more, lines in pages]
    about = (
        "A dense bus with jitter, 16 channels at 100 MS/s, in headless Chromium without a graphics processor "
        "(`benchmarks/view.py`). Opened: until the first picture, until clicks and the search answer, until the lines "
        "are unpacked, which are drawn of the overview until then. A "
        "frame is the median of 41, of everything, a tenth, a fortieth, a thousandth and a millionth of the time. "
        f"The load average was {os.getloadavg()[0]:.1f}."
    )
    names = ("page", "transactions", "MB", "s to write", "s to open", "ms a frame", "ms a search")
    head = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    put(args.output, HEADING, "\n".join([HEADING, "", about, "", *head, *rows, ""]))


if __name__ == "__main__":
    main()
