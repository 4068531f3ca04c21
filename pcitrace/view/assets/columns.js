// Columns of tables as `pcitrace/view/packing.py` stores them: byte planes, differences, numbers of words.

/**
 * @typedef {{name: string, type: "whole" | "real" | "text" | "truth", part: number, at: number, width: number, rows: number,
 *   unit: string, meaning: string, steps?: boolean, known?: number, words?: string[], expected?: [string, number][]}} About
 * @typedef {{name: string, row: string, n: number, columns: About[]}} AboutTable
 * @typedef {number | bigint | string | boolean | null} Value
 */

/**
 * Unpack what the page holds.
 * @param {string} text base64 of gzip
 * @returns {Promise<Uint8Array>}
 */
async function unpack(text) {
  const packed = bytesOf(text);
  const gunzip = /** @type {ReadableWritablePair} */ (new (/** @type {any} */ (globalThis).DecompressionStream)("gzip"));
  const stream = new Blob([packed]).stream().pipeThrough(gunzip);
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/**
 * @param {string} text base64
 * @returns {Uint8Array}
 */
function bytesOf(text) {
  const quick = /** @type {any} */ (Uint8Array).fromBase64;
  if (quick) return quick.call(Uint8Array, text);
  const letters = atob(text), out = new Uint8Array(letters.length);
  for (let n = 0; n < out.length; n++) out[n] = letters.charCodeAt(n);
  return out;
}

/** What is unpacked together, in this order: see `packing.py`. */
export const OVERVIEW = 0, ROWS = 1, DETAILS = 2, LINES = 3;

/** The bytes of all columns, part by part as they are unpacked. */
export class Store {
  /** @param {string} packed base64 of gzip, parts with commas between them */
  constructor(packed) {
    this.texts = packed.split(",");
    /** @type {Uint8Array[]} */
    this.parts = [];
  }

  /** @param {number} part */
  has(part) { return part < this.parts.length; }

  /** Unpack the next part. */
  async unpackNext() {
    const part = this.parts.length, bytes = await unpack(this.texts[part]);
    this.texts[part] = "";
    this.parts.push(bytes);
  }

  /** @param {number} part */
  bytes(part) {
    if (!this.has(part)) throw new Error("not yet unpacked");
    return this.parts[part];
  }
}

/**
 * Read the planes of whole numbers.
 * @param {About} about
 * @param {Uint8Array} bytes
 * @returns {Uint32Array | Float64Array | BigUint64Array}
 */
function wholeNumbers(about, bytes) {
  const { rows, width, at } = about;
  if (width <= 4) {
    const out = new Uint32Array(rows);
    for (let plane = 0; plane < width; plane++) {
      const from = at + plane * rows, shift = 8 * plane;
      for (let row = 0; row < rows; row++) out[row] |= bytes[from + row] << shift;
    }
    if (about.steps) {
      const most = width === 4 ? 0xffffffff : (1 << (8 * width)) - 1;
      for (let row = 1; row < rows; row++) out[row] = (out[row] + out[row - 1]) & most;
    }
    return out;
  }
  if (width <= 6) {
    const out = new Float64Array(rows), whole = 2 ** (8 * width);
    for (let plane = 0; plane < width; plane++) {
      const from = at + plane * rows, factor = 2 ** (8 * plane);
      for (let row = 0; row < rows; row++) out[row] += bytes[from + row] * factor;
    }
    if (about.steps) {
      for (let row = 1; row < rows; row++) {
        const sum = out[row] + out[row - 1];
        out[row] = sum >= whole ? sum - whole : sum;
      }
    }
    return out;
  }
  const out = new BigUint64Array(rows);
  for (let plane = 0; plane < width; plane++) {
    const from = at + plane * rows, shift = BigInt(8 * plane);
    for (let row = 0; row < rows; row++) out[row] |= BigInt(bytes[from + row]) << shift;
  }
  const most = (1n << BigInt(8 * width)) - 1n;
  if (about.steps) for (let row = 1; row < rows; row++) out[row] = (out[row] + out[row - 1]) & most;
  return out;
}

/**
 * Read the planes of float64 numbers; NaN is null.
 * @param {About} about
 * @param {Uint8Array} bytes
 */
function realNumbers(about, bytes) {
  const { rows, at } = about;
  const turned = new Uint8Array(8 * rows);
  for (let plane = 0; plane < 8; plane++) {
    for (let row = 0; row < rows; row++) turned[8 * row + plane] = bytes[at + plane * rows + row];
  }
  return new Float64Array(turned.buffer);
}

/**
 * A copy of numbers as float64.
 * @param {Uint32Array | Float64Array | BigUint64Array} numbers
 */
function asFloats(numbers) {
  if (!(numbers instanceof BigUint64Array)) return new Float64Array(numbers);
  const out = new Float64Array(numbers.length);
  for (let row = 0; row < out.length; row++) out[row] = Number(numbers[row]);
  return out;
}

/** One column; its numbers are read when they are asked for first. */
export class Column {
  /**
   * @param {About} about
   * @param {Store} store
   * @param {[Column, number][]} expected the columns whose sum, each times its factor, the values are near
   */
  constructor(about, store, expected = []) {
    this.about = about;
    this.store = store;
    this.expected = expected;
    /** @type {Uint32Array | Float64Array | BigUint64Array | null} */
    this.stored = null;
  }

  get bytes() { return this.store.bytes(this.about.part); }

  /** The numbers as stored: 0 where null, NaN of real numbers. */
  numbers() {
    if (!this.stored) {
      this.stored = this.about.type === "real" ? realNumbers(this.about, this.bytes) : wholeNumbers(this.about, this.bytes);
      if (this.expected.length) this.stored = this.fromExpected(this.stored);
    }
    return this.stored;
  }

  /**
   * Values from their differences, stored as 0, -1, 1, -2 ..., to what others lead to expect.
   * @param {Uint32Array | Float64Array | BigUint64Array} differences
   */
  fromExpected(differences) {
    const out = new Float64Array(differences.length);
    for (const [column, factor] of this.expected) {
      const near = column.floats();
      for (let row = 0; row < out.length; row++) if (near[row] === near[row]) out[row] += factor * near[row];
    }
    const codes = asFloats(differences);
    for (let row = 0; row < out.length; row++) {
      const coded = codes[row];
      out[row] = Math.floor(out[row] + 0.5) + (coded % 2 ? -(coded + 1) / 2 : coded / 2);
    }
    return out;
  }

  /** The numbers as float64, null as NaN: an array of its own. */
  floats() {
    const numbers = this.numbers(), { known, rows } = this.about, out = asFloats(numbers);
    if (known === undefined) return out;
    const { bytes } = this;
    for (let row = 0; row < rows; row++) if (!bytes[known + row]) out[row] = NaN;
    return out;
  }

  /**
   * The value of a row: of a text its number among the words, of a truth value 0 or 1.
   * @param {number} row
   * @returns {number | bigint | null}
   */
  number(row) {
    const value = this.numbers()[row];
    if (this.about.type === "real") return Number.isNaN(value) ? null : value;
    if (this.about.known !== undefined && !this.bytes[this.about.known + row]) return null;
    return value;
  }

  /**
   * @param {number} row
   * @returns {Value}
   */
  value(row) {
    const number = this.number(row);
    if (number === null) return null;
    if (this.about.type === "text") return /** @type {string[]} */ (this.about.words)[Number(number)];
    return this.about.type === "truth" ? Boolean(number) : number;
  }
}

/** A column that follows from others. */
export class Derived {
  /**
   * @param {{name: string, type: About["type"], unit: string, meaning: string}} about
   * @param {(row: number) => Value} value
   */
  constructor(about, value) {
    this.about = about;
    this.value = value;
  }
}

/** A table of columns. */
export class Table {
  /**
   * @param {AboutTable} about
   * @param {Store} store
   */
  constructor(about, store) {
    this.name = about.name;
    this.row = about.row;
    this.n = about.n;
    /** @type {Map<string, Column | Derived>} */
    this.columns = new Map();
    for (const one of about.columns) {
      /** @type {[Column, number][]} */
      const expected = (one.expected ?? []).map(([name, factor]) => [this.column(name), factor]);
      this.columns.set(one.name, new Column(one, store, expected));
    }
  }

  /** @param {string} name */
  column(name) {
    const found = this.columns.get(name);
    if (!(found instanceof Column)) throw new Error(`${this.name} has no column ${name}`);
    return found;
  }

  /**
   * @param {string} name
   * @param {number} row
   * @returns {any}
   */
  value(name, row) {
    return this.columns.get(name)?.value(row) ?? null;
  }

  /**
   * A column of times or counts as float64, for looking up; null is NaN.
   * @param {string} name
   * @returns {Float64Array}
   */
  floats(name) {
    return this.column(name).floats();
  }
}

/**
 * The first row whose number is not below a value, in a column that ascends.
 * @param {ArrayLike<number>} numbers
 * @param {number} value
 * @param {number} low the first row that it may be
 * @param {number} high the last
 */
export function firstFrom(numbers, value, low = 0, high = numbers.length) {
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (numbers[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

const APART = 256;

/** Numbers that ascend, every 256th also apart: a search among millions of them stays in the processor's caches. */
export class Ascending {
  /** @param {Float64Array} numbers */
  constructor(numbers) {
    this.numbers = numbers;
    this.some = new Float64Array(Math.ceil(numbers.length / APART));
    for (let n = 0; n < this.some.length; n++) this.some[n] = numbers[n * APART];
  }

  /**
   * The first row whose number is not below a value.
   * @param {number} value
   */
  firstFrom(value) {
    const part = firstFrom(this.some, value);
    return part && firstFrom(this.numbers, value, (part - 1) * APART + 1, Math.min(part * APART, this.numbers.length));
  }
}
