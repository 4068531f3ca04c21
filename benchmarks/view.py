"""The interactive view of many transactions: how large its page is, how long it takes to open and to draw a frame.

usage: python benchmarks/view.py [--transactions N] [-o PAGE]        needs chromium
The trace is a dense one of `traffic.dense` with jitter: nothing repeats, so nothing packs better than a real one.
"""

from __future__ import annotations

import argparse
import http.server
import json
import queue
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import spectrum
import traffic

import pcitrace
from pcitrace import view

SAMPLES_A_TRANSACTION = 52  # of traffic.dense: about; the page says how many there are

TIMED = """<script type="module">
const view = await window.pcitraceView;
const opened = performance.now();
const draw = () => { const began = performance.now(); view.paint(); return performance.now() - began; };
const whole = view.axis.last - view.axis.first, times = {};
for (const [name, share] of [["everything", 1], ["a tenth", 0.1], ["a thousandth", 1e-3], ["a clock or so", 1e-6]]) {
  const list = [];
  for (let n = 0; n < 40; n++) {
    const middle = view.axis.first + whole * (0.1 + 0.02 * n);
    view.axis.show(middle - share * whole / 2, middle + share * whole / 2);
    list.push(draw());
  }
  times[name] = list.sort((a, b) => a - b)[20];
}
const began = performance.now();
view.search("command is None and bytes > 8");
const search = performance.now() - began;
await fetch("told", {method: "POST", body: JSON.stringify({opened, times, search, found: view.found.length})});
</script></body>"""


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
            return answers.get(timeout=120)
        finally:
            browser.terminate()
            browser.wait()
            server.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transactions", type=int, default=1_000_000)
    parser.add_argument("-o", "--output", type=Path, help="keep the page with its lines")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        samples = traffic.dense(args.transactions * SAMPLES_A_TRANSACTION, jitter=True)
        shape = spectrum.Shape("dense", samples.tobytes(), 2, traffic.CHANNELS_DENSE)
        spectrum.write(folder / "dense.sr", shape)
        for name, lines in (("rows alone", False), ("with control lines", True)):
            page = folder / "view.html"
            opened = pcitrace.open(folder / "dense.sr")
            began = time.perf_counter()
            view.write(opened, page, lines=lines)
            took = time.perf_counter() - began
            text = page.read_text()
            page.write_text(text.replace("</body>", TIMED))
            told = opened_in_chromium(page, folder / "profile")
            frames = ", ".join(f"{part} {ms:.1f}" for part, ms in told["times"].items())
            print(
                f"{name}: {len(opened.bus.transactions):,} transactions, {len(text) / 1e6:.1f} MB, "
                f"written in {took:.1f} s; "
                f"opened in {told['opened'] / 1e3:.2f} s; median ms a frame: {frames}; "
                f"search {told['search']:.0f} ms, {told['found']:,} found"
            )
            if args.output is not None and lines:
                shutil.copy(page, args.output)


if __name__ == "__main__":
    main()
