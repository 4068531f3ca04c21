// The lanes of the picture. Each has a height, draws itself, and says which row is at a place.
// Beside every colour there is a place or a shape: reads are in the upper half, writes in the lower; what did not complete
// ends in a mark.

import { Axis } from "./axis.js";
import { Ascending, firstFrom, Table } from "./columns.js";
import { CHANGES, Coverage, Levels } from "./pyramid.js";
import { Spans } from "./spans.js";

/**
 * @typedef {{pen: CanvasRenderingContext2D, axis: Axis, colours: Record<string, string>, matches: Matches | null,
 *   chosen: number, rows: boolean}} Scene rows: whether the rows are there, or the overview alone
 * @typedef {{rows: Uint8Array, starts: Ascending}} Matches of each row whether it was found; and when these start, us
 * @typedef {{table: string, row: number}} Place
 */

/** Kinds of transactions, their colour and letter. */
export const KINDS = [
  { name: "memory read", colour: "read", letter: "R" },
  { name: "memory write", colour: "write", letter: "W" },
  { name: "I/O or configuration read", colour: "other", letter: "r" },
  { name: "I/O or configuration write", colour: "other", letter: "w" },
  { name: "command not captured", colour: "plain", letter: "" },
];

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
  let shown = text, width = pen.measureText(text).width;
  for (let letters = Math.floor(text.length * wide / width); width > wide; letters--) {
    if (letters < 4) return;
    shown = `${text.slice(0, letters - 1)}…`;
    width = pen.measureText(shown).width;
  }
  pen.fillText(shown, left + 3, middle);
}

/** A lane of spans of one table. */
export class SpansLane {
  /**
   * @param {{label: string, table: Table, load: () => Spans, coverage?: Coverage, height: number, colours: string[],
   *   halves: boolean, text: (row: number) => string, mark?: (row: number) => string}} of
   */
  constructor({ label, table, load, coverage, height, colours, halves, text, mark }) {
    this.label = label;
    this.table = table;
    this.load = load;
    this.coverage = coverage;
    /** @type {Spans | null} */
    this._spans = null;
    this.height = height;
    this.colours = colours;
    this.halves = halves;
    this.text = text;
    this.mark = mark ?? (() => "");
    this.one = new Float64Array(colours.length);
    this.two = new Float64Array(colours.length);
  }

  get spans() { return this._spans ??= this.load(); }

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
    const { axis, rows } = scene, { coverage } = this;
    if (coverage && (!rows || axis.step >= coverage.step)) return this.drawShares(scene, top, coverage);
    if (!rows) return scene.pen.fillText("…", axis.left + 4, top + this.height / 2);
    const [from, to] = this.spans.range(axis.low, axis.high);
    if (to - from > 2 * (axis.right - axis.left)) this.drawShares(scene, top, this.spans);
    else for (let row = from; row < to; row++) this.drawRow(scene, top, row);
    return undefined;
  }

  /**
   * How much of each pixel's time is covered, as height.
   * @param {Scene} scene
   * @param {number} top
   * @param {Spans | Coverage} spans
   */
  drawShares({ pen, axis, colours, matches }, top, spans) {
    const step = axis.step;
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
    const { starts } = matches;
    for (let x = axis.left; x < axis.right; x++) {
      if (starts.numbers[starts.firstFrom(axis.time(x))] < axis.time(x + 1)) pen.fillRect(x, top - 3, 1, 3);
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
    if (matches?.rows[row]) { pen.fillStyle = colours.match; pen.fillRect(x, top - 3, Math.max(wide, 2), 3); }
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
   * @param {SpansLane} of the lane of the transactions
   * @param {Coverage} coverage
   */
  constructor(label, of, coverage) {
    this.label = label;
    this.of = of;
    this.coverage = coverage;
    this.height = 26;
    this.one = new Float64Array(coverage.kinds);
    this.two = new Float64Array(coverage.kinds);
  }

  /**
   * @param {Scene} scene
   * @param {number} top
   */
  draw({ pen, axis, colours, rows }, top) {
    pen.fillStyle = colours.soft;
    const step = Math.max(1, Math.ceil((axis.right - axis.left) / 400)), { coverage } = this;
    const spans = !rows || step * axis.step >= coverage.step ? coverage : this.of.spans;
    spans.covered(axis.low, this.one);
    let before = this.one.reduce((sum, one) => sum + one, 0);
    for (let x = axis.left; x < axis.right; x += step) {
      spans.covered(axis.time(x + step), this.two);
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
   * @param {() => Float64Array} load gives the times, us, ascending
   */
  constructor(label, table, load) {
    this.label = label;
    this.table = table;
    this.load = load;
    /** @type {Ascending | null} */
    this._times = null;
    this.height = 14;
  }

  get times() { return this._times ??= new Ascending(this.load()); }

  /**
   * @param {Scene} scene
   * @param {number} top
   */
  draw({ pen, axis, colours, chosen, rows }, top) {
    if (!rows) return pen.fillText("…", axis.left + 4, top + this.height / 2);
    const { times } = this, { numbers } = times, to = times.firstFrom(axis.high);
    const triangle = (/** @type {number} */ x) => {
      pen.moveTo(x, top + 1);
      pen.lineTo(x + 6, top + 12);
      pen.lineTo(x - 6, top + 12);
      pen.closePath();
    };
    pen.fillStyle = colours.problem;
    pen.beginPath();
    // One each three pixels at most: what lies closer together looks the same.
    for (let row = times.firstFrom(axis.low); row < to; row = Math.max(row + 1, times.firstFrom(numbers[row] + 3 * axis.step))) triangle(axis.x(numbers[row]));
    pen.fill();
    if (chosen < 0) return undefined;
    pen.fillStyle = colours.ink;
    pen.beginPath();
    triangle(axis.x(numbers[chosen]));
    pen.fill();
    return undefined;
  }

  /**
   * @param {Axis} axis
   * @param {number} x
   * @returns {Place | null}
   */
  hit(axis, x) {
    const time = axis.time(x), row = this.times.firstFrom(time), near = 7 * axis.step;
    for (const one of [row, row - 1]) {
      if (one >= 0 && Math.abs(this.times.numbers[one] - time) <= near) return { table: this.table.name, row: one };
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
   * @param {Levels} overview
   */
  constructor(label, load, overview) {
    this.label = label;
    this.load = load;
    this.overview = overview;
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
    const ys = [top + this.height - 1.5, top + 1.5, top + this.height / 2];
    pen.strokeStyle = colours.ink;
    pen.fillStyle = colours.soft;
    pen.lineWidth = 1;
    const { overview, _loaded: loaded } = this, wide = axis.right - axis.left;
    if (axis.step >= overview.step) return this.drawPixels(pen, axis, ys, x => overview.between(axis.time(x), axis.time(x + 1)));
    if (!loaded) return pen.fillText("…", axis.left + 4, top + this.height / 2);
    const { times, levels } = loaded, changes = times.numbers, to = times.firstFrom(axis.high);
    const levelOf = (/** @type {number} */ row) => row > 0 ? levels[row - 1] : 2, yOf = (/** @type {number} */ row) => ys[levelOf(row)];
    let row = times.firstFrom(axis.low);
    if (to - row > wide) {
      return this.drawPixels(pen, axis, ys, x => {
        const before = row;
        row = times.firstFrom(axis.time(x + 1));
        return row > before ? CHANGES : levelOf(before);
      });
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
    return undefined;
  }

  /**
   * Pixels that look alike are drawn together.
   * @param {CanvasRenderingContext2D} pen
   * @param {Axis} axis
   * @param {number[]} ys of each level
   * @param {(x: number) => number} at the level in a pixel; they are asked from left to right
   */
  drawPixels(pen, axis, ys, at) {
    let since = axis.left, seen = at(since);
    const fill = (/** @type {number} */ x) => {
      if (seen === CHANGES) pen.fillRect(since, ys[1], x - since, ys[0] - ys[1]);
      else pen.fillRect(since, ys[seen], x - since, 1);
    };
    for (let x = axis.left + 1; x < axis.right; x++) {
      const now = at(x);
      if (now === seen) continue;
      fill(x);
      since = x;
      seen = now;
    }
    fill(axis.right);
  }

  /** @returns {null} */
  hit() { return null; }
}

/** Frames from memory to wire to memory: three steps, joined. */
export class FramesLane {
  /**
   * @param {string} label
   * @param {Table} table
   * @param {() => Uint32Array} load gives the rows of the table, by time
   */
  constructor(label, table, load) {
    this.label = label;
    this.table = table;
    this.load = load;
    /** @type {ReturnType<FramesLane["readTimes"]> | null} */
    this._read = null;
    this.height = 54;
  }

  get read() { return this._read ??= this.readTimes(); }

  readTimes() {
    const { table } = this, rows = this.load();
    const times = ["dma_start_us", "dma_end_us", "wire_start_us", "wire_end_us", "rx_dma_start_us", "rx_dma_end_us"];
    const steps = times.map(name => {
      const all = table.floats(name);
      return Float64Array.from(rows, row => all[row]);
    });
    /** Where each frame begins, in order: of one of which no time is known, where the one before does. */
    const first = new Float64Array(rows.length);
    let before = -Infinity, longest = 0;
    for (let n = 0; n < rows.length; n++) {
      const known = steps.map(step => step[n]).filter(time => !Number.isNaN(time));
      before = first[n] = known.length ? Math.max(Math.min(...known), before) : before;
      if (known.length) longest = Math.max(longest, Math.max(...known) - before);
    }
    return { rows, steps, first, longest, lengths: table.floats("length_bytes") };
  }

  /**
   * @param {number} low
   * @param {number} high
   */
  range(low, high) {
    const { first, longest } = this.read;
    return [firstFrom(first, low - longest), firstFrom(first, high)];
  }

  /**
   * @param {Scene} scene
   * @param {number} top
   */
  draw(scene, top) {
    const { axis, pen, colours } = scene;
    if (!scene.rows) return pen.fillText("…", axis.left + 4, top + this.height / 2);
    const [from, to] = this.range(axis.low, axis.high);
    const every = Math.max(1, Math.floor((to - from) / (2 * (axis.right - axis.left))));
    for (let n = from; n < to; n += every) this.drawFrame(scene, top, n);
    if (every > 1) {
      pen.fillStyle = colours.ink;
      pen.fillText(`one of ${every} drawn`, axis.left + 4, top + this.height - 6);
    }
    return undefined;
  }

  /**
   * @param {Scene} scene
   * @param {number} top
   * @param {number} n
   */
  drawFrame(scene, top, n) {
    const { pen, axis, colours, chosen } = scene, { rows, steps, lengths } = this.read, row = rows[n];
    const names = ["read", "wire", "write"];
    pen.strokeStyle = row === chosen ? colours.ink : colours.soft;
    pen.lineWidth = row === chosen ? 2 : 1;
    pen.beginPath();
    let joined = false;
    for (let step = 0; step < 3; step++) {
      const start = steps[2 * step][n], end = steps[2 * step + 1][n], y = top + 7 + 20 * step;
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
      const start = steps[2 * step][n], end = steps[2 * step + 1][n], y = top + 20 * step;
      if (Number.isNaN(start) || Number.isNaN(end)) continue;
      const from = Math.max(axis.x(start), axis.left - 2), wide = Math.max(Math.min(axis.x(end), axis.right + 2) - from, 1);
      if (wide < 0 || from > axis.right) continue;
      pen.fillStyle = colours[names[step]];
      pen.fillRect(from, y, wide, 14);
      if (step === 1 && wide > 30) {
        pen.fillStyle = colours.onBar;
        within(scene, Number.isNaN(lengths[row]) ? "" : `${lengths[row]} B`, axis.x(start), axis.x(end), y + 7);
      }
    }
  }

  /**
   * @param {Axis} axis
   * @param {number} x
   * @returns {Place | null}
   */
  hit(axis, x) {
    const { rows, steps } = this.read, time = axis.time(x), near = 4 * axis.step, [from, to] = this.range(time - near, time + near);
    let best = -1, far = Infinity;
    for (let n = from; n < to; n++) {
      for (let step = 0; step < 3; step++) {
        const start = steps[2 * step][n], end = steps[2 * step + 1][n];
        const away = time < start ? start - time : Math.max(time - end, 0);
        if (away < far && away <= near) { best = n; far = away; }
      }
    }
    return best < 0 ? null : { table: "frames", row: rows[best] };
  }
}
