// What the tables of a bus mean to each other: times on the run's axis, what belongs to what, and rows as text.

import { Derived, DETAILS, firstFrom, Store, Table } from "./columns.js";

/**
 * @typedef {import("./columns.js").AboutTable} AboutTable
 * @typedef {{name: string, clock_mhz: number | null, us_per_sample: number, axis: {start_us: number, slope: number},
 *   lines: string[], overview: {first: number, last: number, bins: number, at: number}, transactions: AboutTable, problems: AboutTable, data_phases: AboutTable | null,
 *   bursts?: AboutTable, pieces?: AboutTable, csr_accesses?: AboutTable, waves?: Wave[]}} AboutBus
 * @typedef {{line: string, overview: number, changes: import("./columns.js").About, levels: import("./columns.js").About}} Wave
 * @typedef {{format: number, version: string, title: string, simulated: boolean, buses: AboutBus[],
 *   frames: AboutTable | null, findings: string[], notes: string[], commands: string[], kinds: number[]}} AboutRun
 * @typedef {{bus: number, table: string, row: number}} Choice bus -1: of the run
 */

/** One bus: its tables, its transactions' times on the run's axis. */
export class BusRows {
  /**
   * @param {AboutBus} about
   * @param {Store} store
   * @param {string[]} commands
   */
  constructor(about, store, commands) {
    this.about = about;
    this.store = store;
    /** @type {Float64Array | null} */
    this._start = null;
    /** @type {Float64Array | null} */
    this._end = null;
    /** @type {Float64Array | null} first attempts of register accesses */
    this._accesses = null;
    /** @type {Float64Array | null} transactions of data phases */
    this._phases = null;
    this.name = about.name;
    const transactions = new Table(about.transactions, store);
    /** @type {Map<string, Table>} */
    this.tables = new Map([["transactions", transactions]]);
    for (const one of [about.problems, about.data_phases, about.bursts, about.pieces, about.csr_accesses]) {
      if (one) this.tables.set(one.name, new Table(one, store));
    }
    this.transactions = transactions;
    this.deriveColumns(commands);
  }

  /** When each transaction starts, us on the run's axis. */
  get start() { return this._start ??= this.onAxis(this.transactions, "start_sample"); }

  get end() { return this._end ??= this.onAxis(this.transactions, "end_sample"); }

  /**
   * A sample as us on the run's axis.
   * @param {number} sample
   */
  time(sample) {
    const { start_us: start, slope } = this.about.axis;
    return sample * this.about.us_per_sample * slope + start;
  }

  /**
   * What the page does not hold because it follows.
   * @param {string[]} commands
   */
  deriveColumns(commands) {
    const { transactions } = this, us = this.about.us_per_sample, stored = transactions.columns;
    transactions.columns = new Map();
    const problems = /** @type {Table} */ (this.tables.get("problems"));
    /**
     * @param {Table} table
     * @param {string} name
     * @param {"real" | "whole" | "text"} type
     * @param {string} meaning
     * @param {(row: number) => any} value
     */
    const derive = (table, name, type, meaning, value) =>
      table.columns.set(name, new Derived({ name, type, unit: type === "real" ? "us" : "", meaning }, value));
    const times = { start_us: "start_sample", end_us: "end_sample", first_data_us: "first_data", last_data_us: "last_data", time_us: "sample" };
    derive(transactions, "transaction", "whole", "Number within the bus, from 0.", row => row);
    for (const [name, of] of Object.entries(times)) {
      const table = name === "time_us" ? problems : transactions;
      const column = /** @type {import("./columns.js").Column} */ (stored.get(of) ?? table.columns.get(of));
      derive(table, name, "real", `Time of ${of}, from the capture's start.`, row => {
        const value = column.number(row);
        return value === null ? null : Number(value) * us;
      });
    }
    const command = /** @type {import("./columns.js").Column} */ (stored.get("command"));
    derive(transactions, "command_name", "text", "The command in words.", row => {
      const number = command.number(row);
      return number === null ? null : commands[Number(number)];
    });
    for (const [name, column] of stored) transactions.columns.set(name, column);
  }

  /**
   * A column of samples as us on the run's axis.
   * @param {Table} table
   * @param {string} name
   */
  onAxis(table, name) {
    const out = table.floats(name), { start_us: start, slope } = this.about.axis, us = this.about.us_per_sample;
    for (let row = 0; row < out.length; row++) out[row] = out[row] * us * slope + start;
    return out;
  }

  /** Each transaction's burst, -1 for none. */
  get burstOf() {
    if (!this._burstOf) {
      this._burstOf = new Int32Array(this.transactions.n).fill(-1);
      const pieces = this.tables.get("pieces");
      if (pieces) {
        const burst = pieces.floats("burst"), transaction = pieces.floats("transaction");
        for (let row = 0; row < pieces.n; row++) this._burstOf[transaction[row]] = burst[row];
      }
    }
    return this._burstOf;
  }

  /**
   * The attempts that a transaction is one of: those of its address and command, up to the one that was not retried.
   * @param {number} row
   */
  attempts(row) {
    const { transactions } = this;
    const same = (/** @type {number} */ other) =>
      ["address", "command", "initiator"].every(name => transactions.value(name, other) === transactions.value(name, row));
    const retried = (/** @type {number} */ other) => transactions.value("termination", other) === "retry";
    const out = [row], window = 2000;
    for (let other = row - 1; other >= Math.max(0, row - window); other--) {
      if (!same(other)) continue;
      if (!retried(other)) break;
      out.unshift(other);
    }
    if (retried(row)) {
      for (let other = row + 1; other < Math.min(transactions.n, row + window); other++) {
        if (!same(other)) continue;
        out.push(other);
        if (!retried(other)) break;
      }
    }
    return out;
  }

  /**
   * The transaction that begins at a time, -1 for none.
   * @param {number} time us on the run's axis
   */
  transactionAt(time) {
    const half = 0.5 * this.about.us_per_sample * this.about.axis.slope, row = firstFrom(this.start, time - half);
    return this.start[row] < time + half ? row : -1;
  }

  /**
   * The register access that a transaction is an attempt of, -1 for none.
   * @param {number} row
   */
  accessOf(row) {
    const accesses = this.tables.get("csr_accesses"), first = this.start[this.attempts(row)[0]];
    if (!accesses) return -1;
    this._accesses ??= accesses.floats("first_attempt_us");
    return this._accesses.findIndex(time => Math.abs(time - first) < 0.5 * this.about.us_per_sample);
  }

  /**
   * The data phases of a transaction: the first of them, and the one after the last.
   * @param {number} row
   * @returns {[number, number]}
   */
  phasesOf(row) {
    const phases = this.tables.get("data_phases");
    if (!phases) return [0, 0];
    this._phases ??= phases.floats("transaction");
    const from = firstFrom(this._phases, row);
    return [from, firstFrom(this._phases, row + 1, from)];
  }

  /**
   * The problems of a transaction.
   * @param {number} row
   * @returns {number[]}
   */
  problemsOf(row) {
    if (!this._problems) {
      /** @type {Map<number, number[]>} */
      this._problems = new Map();
      const problems = /** @type {Table} */ (this.tables.get("problems")), of = problems.floats("transaction");
      of.forEach((transaction, problem) => {
        if (Number.isNaN(transaction)) return;
        const list = this._problems?.get(transaction);
        if (list) list.push(problem);
        else this._problems?.set(transaction, [problem]);
      });
    }
    return this._problems.get(row) ?? [];
  }

  /**
   * One line about a transaction.
   * @param {number} row
   */
  describe(row) {
    const { transactions } = this, words = [];
    if (!this.store.has(DETAILS)) return "…";
    const command = transactions.value("command_name", row), address = transactions.value("address", row);
    if (command !== null) words.push(command.replace(/_/g, " "));
    if (address !== null) words.push(hex(address));
    const bytes = transactions.value("bytes", row);
    if (bytes !== null) words.push(`${bytes} B`);
    const end = transactions.value("termination", row);
    if (end !== "completion") words.push(String(end).replace(/_/g, " "));
    return words.join(" ");
  }
}

/** @param {number | bigint} number */
export function hex(number) {
  return `0x${number.toString(16).padStart(8, "0")}`;
}

/**
 * A value as people read it.
 * @param {string} name
 * @param {any} value
 * @param {string} unit
 */
export function valueText(name, value, unit) {
  if (value === null) return "–";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (name === "address" || name === "data" || name === "value") return hex(value);
  const text = typeof value === "number" && !Number.isInteger(value) ? String(Number(value.toFixed(6))) : String(value);
  return unit ? `${text} ${unit === "us" ? "µs" : unit}` : text;
}
