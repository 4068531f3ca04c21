// Spans of time in order, and how much of the time they cover: what a lane draws when its rows are narrower than pixels.

import { Ascending } from "./columns.js";

const BLOCK = 64;
/** us: what a row covers at least, so that one of a single clock is seen, too. */
const LEAST = 1e-6;

/** Spans by start; those of one kind do not overlap, or overlap little. */
export class Spans {
  /**
   * @param {Float64Array} start us on the run's axis, ascending
   * @param {Float64Array} end
   * @param {Uint8Array} kind
   * @param {number} kinds
   */
  constructor(start, end, kind, kinds) {
    this.start = start;
    this.starts = new Ascending(start);
    this.end = end;
    this.kind = kind;
    this.kinds = kinds;
    const blocks = Math.ceil(start.length / BLOCK);
    /** Covered time before each block, by kind. */
    this.before = new Float64Array((blocks + 1) * kinds);
    /** The longest span up to each block's end: how far back an open span can begin. */
    this.reach = new Float64Array(blocks + 1).fill(-Infinity);
    for (let block = 0; block < blocks; block++) {
      const from = block * kinds;
      for (let one = 0; one < kinds; one++) this.before[from + kinds + one] = this.before[from + one];
      let reach = this.reach[block];
      for (let row = block * BLOCK; row < Math.min((block + 1) * BLOCK, start.length); row++) {
        this.before[from + kinds + kind[row]] += Math.max(end[row] - start[row], LEAST);
        if (end[row] > reach) reach = end[row];
      }
      this.reach[block + 1] = reach;
    }
  }

  get n() { return this.start.length; }

  /**
   * The rows that touch a time span: from, to (not included).
   * @param {number} low
   * @param {number} high
   */
  range(low, high) {
    let from = this.starts.firstFrom(low);
    // A span that began earlier may still go on.
    while (from > 0 && this.reach[Math.ceil(from / BLOCK)] > low) {
      let back = from - 1;
      const stop = Math.floor(back / BLOCK) * BLOCK;
      let hit = -1;
      for (; back >= stop; back--) if (this.end[back] >= low) hit = back;
      if (hit >= 0) from = hit;
      if (stop === 0 || this.reach[stop / BLOCK] <= low) break;
      if (hit < 0) from = stop;
    }
    return [from, this.starts.firstFrom(high)];
  }

  /**
   * Time covered before `time` by the spans that begin before it, into `out`.
   * @param {number} time
   * @param {Float64Array} out
   */
  covered(time, out) {
    // The last span before `time` may go on behind it: its block is counted row by row.
    const to = this.starts.firstFrom(time), block = Math.floor(Math.max(to - 1, 0) / BLOCK), from = block * this.kinds;
    for (let one = 0; one < this.kinds; one++) out[one] = this.before[from + one];
    for (let row = block * BLOCK; row < to; row++) out[this.kind[row]] += Math.max(Math.min(this.end[row], time) - this.start[row], LEAST);
  }

  /**
   * The row at a time, or the nearest within `near`; -1 if there is none.
   * @param {number} time
   * @param {number} near
   */
  at(time, near) {
    const [from, to] = this.range(time - near, time + near);
    let best = -1, far = Infinity;
    for (let row = from; row < Math.min(to, from + 5000); row++) {
      const away = time < this.start[row] ? this.start[row] - time : Math.max(time - this.end[row], 0);
      if (away <= far && away <= near) { best = row; far = away; }
    }
    return best;
  }
}
