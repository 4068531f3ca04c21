// The lanes of the picture. Each has a height, draws itself, and says which row is at a place.
// Beside every colour there is a place or a shape: reads are in the upper half, writes in the lower; what did not complete
// ends in a mark.

import { Axis } from "./axis.js";
import { Ascending, firstFrom, Table } from "./columns.js";
import { Spans } from "./spans.js";

/**
 * @typedef {{pen: CanvasRenderingContext2D, axis: Axis, colours: Record<string, string>, matches: Uint8Array | null,
 *   chosen: number}} Scene
 * @typedef {{table: string, row: number}} Place
 */

export const READS = new Set([0, 2, 6, 10, 12, 14]);
export const MEMORY = new Set([6, 7, 12, 14, 15]);
/** Kinds of transactions, their colour and letter. */
export const KINDS = [
  { name: "memory read", colour: "read", letter: "R" },
  { name: "memory write", colour: "write", letter: "W" },
  { name: "I/O or configuration read", colour: "other", letter: "r" },
  { name: "I/O or configuration write", colour: "other", letter: "w" },
  { name: "command not captured", colour: "plain", letter: "" },
];

/** @param {number | null} command */
export function kindOf(command) {
  if (command === null) return 4;
  return (MEMORY.has(command) ? 0 : 2) + (READS.has(command) ? 0 : 1);
}

/**
 * The half of a lane in which a kind is drawn.
 * @param {number} kind
 * @param {number} top
 * @param {number} height
 */
function half(kind, top, height) {
  if (kind === 4) return [top, height];
  return kind % 2 === 0 ? [top, height / 2 - 1] : [top + height / 2 + 1, height / 2 - 1];
}

/**
 * Text within a bar, if there is room.
 * @param {Scene} scene
 * @param {string} text
 * @param {number} from
 * @param {number} to
 * @param {number} middle
 */
function within(scene, text, from, to, middle) {
  const { pen, axis } = scene, left = Math.max(from, axis.left), wide = Math.min(to, axis.right) - left - 6;
  if (wide < 6 || !text) return;
  let shown = text;
  if (pen.measureText(shown).width > wide) {
    const letters = Math.floor(wide / 7);
    if (letters < 4) return;
    shown = letters >= text.length ? text : `${text.slice(0, letters - 1)}…`;
    if (pen.measureText(shown).width > wide) return;
  }
  pen.fillText(shown, left + 3, middle);
}

/** A lane of spans of one table. */
export class SpansLane {
  /**
   * @param {{label: string, table: Table, spans: Spans, height: number, colours: string[], halves: boolean,
   *   text: (row: number) => string, mark?: (row: number) => string}} of
   */
  constructor({ label, table, spans, height, colours, halves, text, mark }) {
    this.label = label;
    this.table = table;
    this.spans = spans;
    this.height = height;
    this.colours = colours;
    this.halves = halves;
    this.text = text;
    this.mark = mark ?? (() => "");
    this.one = new Float64Array(colours.length);
    this.two = new Float64Array(colours.length);
  }

  /**
   * @param {number} kind
   * @param {number} top
   */
  place(kind, top) {
    return this.halves ? half(kind, top, this.height) : [top, this.height];
  }

  /**
   * @param {Scene} scene
   * @param {number} top
   */
  draw(scene, top) {
    const { axis } = scene, [from, to] = this.spans.range(axis.low, axis.high);
    if (to - from > 2 * (axis.right - axis.left)) this.drawShares(scene, top);
    else for (let row = from; row < to; row++) this.drawRow(scene, top, row);
  }

  /**
   * How much of each pixel's time is covered, as height.
   * @param {Scene} scene
   * @param {number} top
   */
  drawShares({ pen, axis, colours, matches }, top) {
    const { spans } = this, step = axis.step;
    const wide = axis.right - axis.left, kinds = this.colours.length, shares = new Float64Array(wide * kinds);
    spans.covered(axis.low, this.one);
    for (let x = 0; x < wide; x++) {
      spans.covered(axis.time(axis.left + x + 1), this.two);
      for (let kind = 0; kind < kinds; kind++) shares[kind * wide + x] = Math.min((this.two[kind] - this.one[kind]) / step, 1);
      this.one.set(this.two);
    }
    const stacked = [new Float64Array(wide), new Float64Array(wide)];
    for (let kind = 0; kind < kinds; kind++) {
      const [y, height] = this.place(kind, top), under = stacked[this.halves ? kind % 2 : 0];
      pen.fillStyle = colours[this.colours[kind]];
      for (let x = 0; x < wide; x++) {
        const share = shares[kind * wide + x];
        if (share <= 0) continue;
        const tall = Math.max(share * height, 1);
        pen.fillRect(axis.left + x, Math.max(y, y + height - tall - under[x]), 1, tall);
        under[x] += tall;
      }
    }
    if (!matches) return;
    pen.fillStyle = colours.match;
    for (let x = axis.left; x < axis.right; x++) {
      const from = spans.starts.firstFrom(axis.time(x)), to = spans.starts.firstFrom(axis.time(x + 1));
      for (let row = from; row < to; row++) if (matches[row]) { pen.fillRect(x, top - 3, 1, 3); break; }
    }
  }

  /**
   * @param {Scene} scene
   * @param {number} top
   * @param {number} row
   */
  drawRow(scene, top, row) {
    const { pen, axis, colours, matches, chosen } = scene, { spans } = this, kind = spans.kind[row];
    const from = axis.x(spans.start[row]), to = axis.x(spans.end[row]);
    const x = Math.max(from, axis.left - 2), wide = Math.max(Math.min(to, axis.right + 2) - x, 1);
    const [y, height] = this.place(kind, top);
    pen.fillStyle = colours[this.colours[kind]];
    pen.fillRect(x, y, wide, height);
    if (wide > 14 && height >= 12) {
      pen.fillStyle = colours.onBar;
      within(scene, this.text(row), from, to, y + height / 2);
    }
    const mark = this.mark(row);
    if (mark && to < axis.right + 8) {
      pen.fillStyle = colours.ink;
      pen.fillText(mark, Math.min(to, axis.right) + 1, y + height / 2);
    }
    if (matches?.[row]) { pen.fillStyle = colours.match; pen.fillRect(x, top - 3, Math.max(wide, 2), 3); }
    if (row === chosen) { pen.strokeStyle = colours.ink; pen.lineWidth = 2; pen.strokeRect(x - 1, y - 1, wide + 2, height + 2); }
  }

  /**
   * @param {Axis} axis
   * @param {number} x
   * @param {number} inside the lane, from its top
   * @returns {Place | null}
   */
  hit(axis, x, inside) {
    const time = axis.time(x), near = 4 * axis.step;
    let row = this.spans.at(time, near);
    if (row >= 0 && this.halves) {
      // Of several rows under a pixel the one in this half.
      const [from, to] = this.spans.range(time - near, time + near), wanted = inside < this.height / 2 ? 0 : 1;
      const same = (/** @type {number} */ one) => this.spans.kind[one] === 4 || this.spans.kind[one] % 2 === wanted;
      for (let other = from; !same(row) && other < Math.min(to, from + 2000); other++) if (same(other)) row = other;
    }
    return row < 0 ? null : { table: this.table.name, row };
  }
}

/** How busy the bus is: the share of the time in transactions, a column a pixel. */
export class OccupancyLane {
  /**
   * @param {string} label
   * @param {Spans} spans
   */
  constructor(label, spans) {
    this.label = label;
    this.spans = spans;
    this.height = 26;
    this.one = new Float64Array(spans.kinds);
    this.two = new Float64Array(spans.kinds);
  }

  /**
   * @param {Scene} scene
   * @param {number} top
   */
  draw({ pen, axis, colours }, top) {
    pen.fillStyle = colours.soft;
    const step = Math.max(1, Math.ceil((axis.right - axis.left) / 400));
    this.spans.covered(axis.low, this.one);
    let before = this.one.reduce((sum, one) => sum + one, 0);
    for (let x = axis.left; x < axis.right; x += step) {
      this.spans.covered(axis.time(x + step), this.two);
      const now = this.two.reduce((sum, one) => sum + one, 0);
      const tall = Math.min((now - before) / (step * axis.step), 1) * this.height;
      pen.fillRect(x, top + this.height - tall, step, tall);
      before = now;
    }
  }

  /** @returns {null} */
  hit() { return null; }
}

/** Where something was wrong: triangles, one a problem. */
export class ProblemsLane {
  /**
   * @param {string} label
   * @param {Table} table
   * @param {Float64Array} times us, ascending; NaN at the end
   */
  constructor(label, table, times) {
    this.label = label;
    this.table = table;
    this.times = times;
    this.height = 14;
  }

  /**
   * @param {Scene} scene
   * @param {number} top
   */
  draw({ pen, axis, colours, chosen }, top) {
    const to = firstFrom(this.times, axis.high);
    let last = -10;
    for (let row = firstFrom(this.times, axis.low); row < to; row++) {
      const x = axis.x(this.times[row]);
      if (x - last < 3 && row !== chosen) continue;
      last = x;
      pen.fillStyle = row === chosen ? colours.ink : colours.problem;
      pen.beginPath();
      pen.moveTo(x, top + 1);
      pen.lineTo(x + 6, top + 12);
      pen.lineTo(x - 6, top + 12);
      pen.fill();
    }
  }

  /**
   * @param {Axis} axis
   * @param {number} x
   * @returns {Place | null}
   */
  hit(axis, x) {
    const time = axis.time(x), row = firstFrom(this.times, time), near = 7 * axis.step;
    for (const one of [row, row - 1]) {
      if (one >= 0 && Math.abs(this.times[one] - time) <= near) return { table: this.table.name, row: one };
    }
    return null;
  }
}

/** One line as a waveform: low, high, in the middle where it is unknown; a grey bar where it changes faster than pixels. */
export class LineLane {
  /**
   * @param {string} label
   * @param {() => [Float64Array, ArrayLike<number>]} load gives the changes (us, ascending) and the levels from each on:
   *   0 low, 1 high, 2 unknown
   */
  constructor(label, load) {
    this.label = label;
    this.load = load;
    this.height = 13;
    /** @type {{times: Ascending, levels: ArrayLike<number>} | null} */
    this._loaded = null;
  }

  get loaded() {
    if (!this._loaded) {
      const [changes, levels] = this.load();
      this._loaded = { times: new Ascending(changes), levels };
    }
    return this._loaded;
  }

  get changes() { return this.loaded.times.numbers; }

  get levels() { return this.loaded.levels; }

  /**
   * @param {Scene} scene
   * @param {number} top
   */
  draw({ pen, axis, colours }, top) {
    if (!this._loaded) {
      pen.fillStyle = colours.soft;
      pen.fillText("…", axis.left + 4, top + this.height / 2);
      return;
    }
    const { changes, levels } = this, { times } = this._loaded, ys = [top + this.height - 1.5, top + 1.5, top + this.height / 2];
    const yOf = (/** @type {number} */ row) => ys[row > 0 ? levels[row - 1] : 2];
    let row = times.firstFrom(axis.low);
    const to = times.firstFrom(axis.high);
    pen.strokeStyle = colours.ink;
    pen.fillStyle = colours.soft;
    pen.lineWidth = 1;
    if (to - row > axis.right - axis.left) {
      // Pixels that look alike are drawn together: -1 is one in which the line changes.
      let since = axis.left, y = NaN;
      const fill = (/** @type {number} */ x) => pen.fillRect(since, y < 0 ? ys[1] : y, x - since, y < 0 ? ys[0] - ys[1] : 1);
      for (let x = axis.left; x < axis.right; x++) {
        const next = times.firstFrom(axis.time(x + 1)), now = next > row ? -1 : yOf(row);
        if (now !== y) {
          if (x > axis.left) fill(x);
          since = x;
          y = now;
        }
        row = next;
      }
      fill(axis.right);
      return;
    }
    pen.beginPath();
    pen.moveTo(axis.left, yOf(row));
    for (; row < to; row++) {
      const x = axis.x(changes[row]);
      pen.lineTo(x, yOf(row));
      pen.lineTo(x, yOf(row + 1));
    }
    pen.lineTo(axis.right, yOf(row));
    pen.stroke();
  }

  /** @returns {null} */
  hit() { return null; }
}

/** Frames from memory to wire to memory: three steps, joined. */
export class FramesLane {
  /**
   * @param {string} label
   * @param {Table} table
   * @param {Uint32Array} rows of the table, by time
   */
  constructor(label, table, rows) {
    this.label = label;
    this.table = table;
    this.rows = rows;
    this.height = 54;
    const times = ["dma_start_us", "dma_end_us", "wire_start_us", "wire_end_us", "rx_dma_start_us", "rx_dma_end_us"];
    this.steps = times.map(name => {
      const all = table.floats(name);
      return Float64Array.from(rows, row => all[row]);
    });
    this.lengths = table.floats("length_bytes");
    /** Where each frame begins, in order: of one of which no time is known, where the one before does. */
    this.first = new Float64Array(rows.length);
    this.longest = 0;
    let before = -Infinity;
    for (let n = 0; n < rows.length; n++) {
      const known = this.steps.map(step => step[n]).filter(time => !Number.isNaN(time));
      before = this.first[n] = known.length ? Math.max(Math.min(...known), before) : before;
      if (known.length) this.longest = Math.max(this.longest, Math.max(...known) - before);
    }
  }

  /**
   * @param {number} low
   * @param {number} high
   */
  range(low, high) {
    return [firstFrom(this.first, low - this.longest), firstFrom(this.first, high)];
  }

  /**
   * @param {Scene} scene
   * @param {number} top
   */
  draw(scene, top) {
    const { axis, pen, colours } = scene, [from, to] = this.range(axis.low, axis.high);
    const every = Math.max(1, Math.floor((to - from) / (2 * (axis.right - axis.left))));
    for (let n = from; n < to; n += every) this.drawFrame(scene, top, n);
    if (every > 1) {
      pen.fillStyle = colours.ink;
      pen.fillText(`one of ${every} drawn`, axis.left + 4, top + this.height - 6);
    }
  }

  /**
   * @param {Scene} scene
   * @param {number} top
   * @param {number} n
   */
  drawFrame(scene, top, n) {
    const { pen, axis, colours, chosen } = scene, row = this.rows[n];
    const names = ["read", "wire", "write"];
    pen.strokeStyle = row === chosen ? colours.ink : colours.soft;
    pen.lineWidth = row === chosen ? 2 : 1;
    pen.beginPath();
    let joined = false;
    for (let step = 0; step < 3; step++) {
      const start = this.steps[2 * step][n], end = this.steps[2 * step + 1][n], y = top + 7 + 20 * step;
      for (const time of [start, end]) {
        if (Number.isNaN(time)) continue;
        const x = Math.min(Math.max(axis.x(time), -1e5), 1e5);
        if (joined) pen.lineTo(x, y);
        else pen.moveTo(x, y);
        joined = true;
      }
    }
    pen.stroke();
    for (let step = 0; step < 3; step++) {
      const start = this.steps[2 * step][n], end = this.steps[2 * step + 1][n], y = top + 20 * step;
      if (Number.isNaN(start) || Number.isNaN(end)) continue;
      const from = Math.max(axis.x(start), axis.left - 2), wide = Math.max(Math.min(axis.x(end), axis.right + 2) - from, 1);
      if (wide < 0 || from > axis.right) continue;
      pen.fillStyle = colours[names[step]];
      pen.fillRect(from, y, wide, 14);
      if (step === 1 && wide > 30) {
        pen.fillStyle = colours.onBar;
        within(scene, Number.isNaN(this.lengths[row]) ? "" : `${this.lengths[row]} B`, axis.x(start), axis.x(end), y + 7);
      }
    }
  }

  /**
   * @param {Axis} axis
   * @param {number} x
   * @returns {Place | null}
   */
  hit(axis, x) {
    const time = axis.time(x), near = 4 * axis.step, [from, to] = this.range(time - near, time + near);
    let best = -1, far = Infinity;
    for (let n = from; n < to; n++) {
      for (let step = 0; step < 3; step++) {
        const start = this.steps[2 * step][n], end = this.steps[2 * step + 1][n];
        const away = time < start ? start - time : Math.max(time - end, 0);
        if (away < far && away <= near) { best = n; far = away; }
      }
    }
    return best < 0 ? null : { table: "frames", row: this.rows[best] };
  }
}
