// Time against pixels, and times as text.

/** What part of the run's time is on the screen, in us, and where. */
export class Axis {
  /**
   * @param {number} first the run's first time, us
   * @param {number} last
   */
  constructor(first, last) {
    /** us, without margins */
    this.whole = last - first;
    const margin = 0.01 * this.whole || 1;
    this.first = first - margin;
    this.last = last + margin;
    this.low = this.first;
    this.high = this.last;
    this.left = 0;
    this.right = 100;
  }

  /** us a pixel */
  get step() { return (this.high - this.low) / (this.right - this.left); }

  /** @param {number} time */
  x(time) { return this.left + (time - this.low) / this.step; }

  /** @param {number} x */
  time(x) { return this.low + (x - this.left) * this.step; }

  /**
   * Show a part; never less than 10 ns, never more than there is.
   * @param {number} low
   * @param {number} high
   */
  show(low, high) {
    const span = Math.min(Math.max(high - low, 0.01), this.last - this.first);
    const middle = (low + high) / 2;
    this.low = Math.min(Math.max(middle - span / 2, this.first), this.last - span);
    this.high = this.low + span;
  }

  /**
   * @param {number} factor
   * @param {number} [about] the time that stays where it is
   */
  zoom(factor, about = (this.low + this.high) / 2) {
    const span = Math.min(Math.max((this.high - this.low) * factor, 0.01), this.last - this.first);
    const share = (about - this.low) / (this.high - this.low);
    this.show(about - share * span, about + (1 - share) * span);
  }

  /** @param {number} share of what is shown */
  pan(share) {
    const span = this.high - this.low, low = Math.min(Math.max(this.low + share * span, this.first), this.last - span);
    this.low = low;
    this.high = low + span;
  }

  /**
   * Times of the ruler's ticks, about 100 pixels apart.
   * @returns {{step: number, times: number[]}}
   */
  ticks() {
    const rough = this.step * 100, power = 10 ** Math.floor(Math.log10(rough));
    const step = power * ([1, 2, 5].find(one => one * power >= rough) ?? 10);
    const times = [];
    for (let n = Math.ceil(this.low / step); n * step <= this.high; n++) times.push(n * step);
    return { step, times };
  }
}

/**
 * A time with as many digits as a step asks for.
 * @param {number} us
 * @param {number} step us
 */
export function timeText(us, step) {
  const [factor, unit] = step >= 1e5 ? [1e6, "s"] : step >= 100 ? [1e3, "ms"] : [1, "µs"];
  const digits = Math.min(Math.max(0, -Math.floor(Math.log10(step / factor) + 1e-9)), 9);
  return `${(us / factor).toFixed(digits)} ${unit}`;
}

/**
 * A duration in the unit that suits it.
 * @param {number} us
 */
export function durationText(us) {
  const size = Math.abs(us);
  if (size >= 1e6) return `${(us / 1e6).toPrecision(6)} s`;
  if (size >= 1e3) return `${(us / 1e3).toPrecision(6)} ms`;
  if (size >= 1) return `${us.toFixed(3)} µs`;
  return `${(us * 1e3).toFixed(1)} ns`;
}
