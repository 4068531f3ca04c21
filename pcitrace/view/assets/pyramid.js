// What is drawn where pixels are wider than rows, as the kernel made it: in equal bins the time that is covered, and what lines are at.

import { OVERVIEW, Store } from "./columns.js";
import { BusRows } from "./rows.js";

const WHOLE = 65535;

/** The time that spans cover, by kind: sums of bins, between whose ends it is taken as even. */
export class Coverage {
  /**
   * @param {BusRows} bus
   * @param {Store} store
   * @param {number} kinds
   */
  constructor(bus, store, kinds) {
    const { first, last, bins, at } = bus.about.overview, bytes = store.bytes(OVERVIEW), n = bins * kinds;
    this.kinds = kinds;
    this.bins = bins;
    this.low = bus.time(first);
    /** us a bin */
    this.step = (bus.time(last) - this.low) / bins;
    this.sums = new Float64Array((bins + 1) * kinds);
    for (let kind = 0; kind < kinds; kind++) {
      let sum = 0;
      for (let bin = 0; bin < bins; bin++) {
        const from = at + kind * bins + bin;
        sum += (bytes[from] | bytes[from + n] << 8) / WHOLE * this.step;
        this.sums[(bin + 1) * kinds + kind] = sum;
      }
    }
  }

  /**
   * Time covered before `time`, into `out`.
   * @param {number} time
   * @param {Float64Array} out
   */
  covered(time, out) {
    const place = Math.min(Math.max((time - this.low) / this.step, 0), this.bins), bin = Math.min(Math.floor(place), this.bins - 1);
    const share = place - bin, from = bin * this.kinds;
    for (let kind = 0; kind < this.kinds; kind++) {
      const before = this.sums[from + kind];
      out[kind] = before + share * (this.sums[from + this.kinds + kind] - before);
    }
  }
}

/** A line whose level is not known, and one that changes within a bin. */
export const UNKNOWN = 2, CHANGES = 3;

/** What a line is at in bins, in bins of twice their length, and so on to one for all. */
export class Levels {
  /**
   * @param {BusRows} bus
   * @param {Store} store
   * @param {number} at
   */
  constructor(bus, store, at) {
    const { first, last, bins } = bus.about.overview;
    this.bins = bins;
    this.low = bus.time(first);
    this.step = (bus.time(last) - this.low) / bins;
    this.states = store.bytes(OVERVIEW).subarray(at, at + 2 * bins - 1);
  }

  /**
   * What the line is at from `low` to `high`: some bins are looked at, never many. Nothing is known beyond the capture.
   * @param {number} low
   * @param {number} high
   */
  between(low, high) {
    let { step, bins } = this, from = 0;
    if (high <= this.low || low >= this.low + bins * step) return UNKNOWN;
    while (2 * step <= high - low && bins > 1) {
      from += bins;
      bins /= 2;
      step *= 2;
    }
    const last = bins - 1, begin = Math.min(Math.max(Math.floor((low - this.low) / step), 0), last);
    const stop = Math.min(Math.max(Math.ceil((high - this.low) / step) - 1, begin), last), state = this.states[from + begin];
    for (let bin = begin + 1; bin <= stop; bin++) if (this.states[from + bin] !== state) return CHANGES;
    return state;
  }
}
