// The view: a canvas of lanes, a panel with what was chosen, a search, markers; mouse, fingers and keys.

import { Axis, durationText, timeText } from "./axis.js";
import { Ascending, Column, DETAILS, firstFrom, LINES, ROWS, Store, Table } from "./columns.js";
import { condition } from "./conditions.js";
import { FramesLane, KINDS, LineLane, OccupancyLane, ProblemsLane, SpansLane } from "./lanes.js";
import { Coverage, Levels } from "./pyramid.js";
import { BusRows, valueText } from "./rows.js";
import { Spans } from "./spans.js";

/**
 * @typedef {import("./rows.js").AboutRun} AboutRun
 * @typedef {import("./rows.js").Choice} Choice
 * @typedef {SpansLane | OccupancyLane | ProblemsLane | LineLane | FramesLane} Lane
 * @typedef {{lane: Lane, bus: number, top: number, wave: boolean}} Placed
 */

const RULER = 30, GAP = 9, NARROW = 700, MOST_WORDS = 64, MOST_ATTEMPTS = 12;
/** In the order of KINDS: what the card reads from memory in the upper half, what it writes in the lower. */
const BURSTS = ["send_data", "receive_data", "descriptor_fetch", "status_write", "unknown"];
/** What a row of each table is called. */
const ROW_OF = { transactions: "transaction", data_phases: "data phase", bursts: "DMA burst", csr_accesses: "register access", problems: "problem", frames: "frame" };
/** Columns that others are made of. */
const HELPERS = ["first_data", "last_data", "sample"];
const SHORT = { completion: "", retry: "↻", disconnect_with_data: "|", disconnect_without_data: "|", target_abort: "✕", master_abort: "✕" };

/**
 * @param {string} tag
 * @param {Record<string, string>} [attributes]
 * @param {(Node | string)[]} [inside]
 */
function element(tag, attributes = {}, inside = []) {
  const out = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) out.setAttribute(name, value);
  out.append(...inside);
  return out;
}

export class View {
  /**
   * @param {HTMLElement} home
   * @param {AboutRun} about
   * @param {Store} store of which the overview is unpacked
   */
  constructor(home, about, store) {
    this.home = home;
    this.about = about;
    this.store = store;
    this.buses = about.buses.map(bus => new BusRows(bus, store, about.commands));
    this.frames = about.frames ? new Table(about.frames, store) : null;
    const busy = this.buses.filter(bus => bus.transactions.n), shown = busy.length ? busy : this.buses;
    const ends = shown.map(bus => [bus.time(bus.about.overview.first), bus.time(bus.about.overview.last)]);
    this.axis = new Axis(Math.min(...ends.map(end => end[0]), ends.length ? Infinity : 0), Math.max(...ends.map(end => end[1]), ends.length ? -Infinity : 1));
    /** @type {Choice | null} */
    this.chosen = null;
    /** @type {(import("./lanes.js").Matches | null)[]} what the search found, of each bus */
    this.matches = this.buses.map(() => null);
    /** @type {[number, number][]} bus and row of what was found, by time */
    this.found = [];
    /** @type {number[]} us */
    this.markers = [];
    this.waves = about.buses.some(bus => bus.waves?.length);
    this.pointer = NaN;
    /** When what was there, in milliseconds from the page's begin. */
    this.since = { picture: NaN, rows: NaN, details: NaN, all: NaN };
    this.milliseconds = /** @type {number[]} */ ([]);
    /** @type {Placed[]} */
    this.lanes = [];
    this.height = 160;
    this.waiting = false;
    this.hash = "";
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.later = undefined;
    this.canvas = /** @type {HTMLCanvasElement} */ (element("canvas", { tabindex: "0", role: "img", "aria-label": "what happened on the buses against time; arrow keys move, plus and minus zoom, n and p go from row to row" }));
    this.hint = element("div", { class: "hint", role: "tooltip" });
    this.panel = element("section", { class: "panel", "aria-live": "polite", "aria-label": "the chosen row" });
    this.query = /** @type {HTMLInputElement} */ (element("input", { type: "search", placeholder: "search: command == memory_write and bytes > 64", "aria-label": "condition on transactions", spellcheck: "false", autocapitalize: "off" }));
    this.told = element("output", { class: "told", "aria-live": "polite" });
    this.stage = element("div", { class: "stage" }, [this.canvas, this.hint]);
    /** The lanes of each bus, and of the frames. */
    this.made = this.buses.map((bus, number) => this.lanesOf(bus, number));
    this.frameLanes = this.lanesOfFrames();
    this.build();
    this.placeLanes();
    this.listen();
    this.fromAddress(["t", "m"]);
    this.resize();
    this.paint();
    this.since.picture = performance.now();
  }

  /** Unpack what the overview does not show: rows, lines, details, with a picture between each. */
  async load() {
    for (const part of [ROWS, DETAILS, LINES]) {
      await pause();
      await this.store.unpackNext();
      if (part === LINES) continue;
      if (part === DETAILS) {
        this.fromAddress(["s", "q"]);
        if (this.query.value) this.search(this.query.value);
      }
      this.showChoice();
      this.paint();
      this.since[part === ROWS ? "rows" : "details"] = performance.now();
    }
    // The lines are read one by one: each is some millions of changes.
    for (const lane of this.made.flat()) {
      if (!(lane instanceof LineLane)) continue;
      await pause();
      void lane.loaded;
      if (this.waves) this.draw();
    }
    this.since.all = performance.now();
  }

  // --- what is on the page

  build() {
    const { about } = this;
    /**
     * @param {string} text
     * @param {string} title
     * @param {() => void} act
     */
    const button = (text, title, act) => {
      const out = element("button", { type: "button", title, "aria-label": title }, [text]);
      out.addEventListener("click", () => { act(); this.draw(); });
      return out;
    };
    const bar = element("div", { class: "bar", role: "toolbar", "aria-label": "view" }, [
      button("−", "wider (-)", () => this.axis.zoom(2)), button("+", "closer (+)", () => this.axis.zoom(0.5)),
      button("all", "everything (0)", () => this.axis.show(this.axis.first, this.axis.last)),
      button("◂", "back (left arrow)", () => this.axis.pan(-0.5)), button("▸", "on (right arrow)", () => this.axis.pan(0.5)),
      button("⚑", "marker (m)", () => this.mark()), this.query,
      button("‹", "what was found before (shift and Enter)", () => this.step(-1)), button("›", "what was found next (Enter)", () => this.step(1)), this.told,
    ]);
    if (about.buses.some(bus => bus.waves?.length)) {
      bar.insertBefore(button("lines", "lines as waveforms (l)", () => { this.waves = !this.waves; this.placeLanes(); }), this.query);
    }
    const legends = [["read", "reads, upper half"], ["write", "writes, lower half"], ["other", "I/O, configuration, registers, descriptors"],
      ["plain", "command not captured"], ...(this.frames ? [["wire", "on the wire"]] : [])];
    const legend = element("p", { class: "legend" }, [
      ...legends.map(([kind, text]) => [element("i", { class: kind }), text]),
      ...["↻ retry", "| disconnect", "✕ abort", "▲ problem"].map(mark => [mark]),
    ].flatMap(parts => [element("span", {}, parts), " "]));
    const notes = [...about.findings, ...about.notes].map(text => element("li", {}, [text]));
    const many = `${notes.length} note${notes.length === 1 ? "" : "s"}`;
    // What is empty says why at once.
    /** @type {Record<string, string>} */
    const open = this.buses.some(bus => bus.transactions.n) ? {} : { open: "" };
    const title = element("h1", {}, [about.title]);
    if (about.simulated) title.append(" ", element("span", { class: "badge" }, ["SIMULATED"]));
    this.home.classList.add("pcitrace");
    this.home.replaceChildren(
      element("header", {}, [title, element("p", { class: "facts" }, [this.summary()])]), bar,
      element("div", { class: "main" }, [this.stage, this.panel]), legend,
      ...(notes.length ? [element("details", { class: "notes", ...open }, [element("summary", {}, [many]), element("ul", {}, notes)])] : []),
      element("p", { class: "help" }, ["Wheel or pinch: zoom. Drag: move. Click: choose a row. Keys: + − 0 ← → n p m l / Enter Esc. The address of this page keeps the place."]),
    );
    this.showChoice();
  }

  summary() {
    const rows = this.buses.map(bus => `${bus.name}: ${bus.transactions.n.toLocaleString("en")} transactions` + (bus.about.clock_mhz ? ` at ${bus.about.clock_mhz.toPrecision(4)} MHz` : ""));
    if (this.frames) rows.push(`${this.frames.n.toLocaleString("en")} frames`);
    return `${rows.join(" · ")} · ${durationText(this.axis.whole)} · pcitrace ${this.about.version}`;
  }

  placeLanes() {
    /** @type {Placed[]} */
    this.lanes = [];
    let top = RULER + 6;
    /**
     * @param {Lane} lane
     * @param {number} bus
     * @param {boolean} [wave]
     */
    const add = (lane, bus, wave = false) => {
      this.lanes.push({ lane, bus, top, wave });
      top += lane.height + (wave ? 3 : GAP);
    };
    this.buses.forEach((bus, number) => {
      for (const lane of this.made[number]) if (!(lane instanceof LineLane)) add(lane, number);
      if (this.waves) for (const lane of this.made[number]) if (lane instanceof LineLane) add(lane, number, true);
      if (number === 0) for (const lane of this.frameLanes) add(lane, -1);
      top += 8;
    });
    this.height = Math.max(top, 160);
    this.canvas.style.height = `${this.height}px`;
    this.resize();
  }

  /**
   * @param {BusRows} bus
   * @param {number} number
   * @returns {Lane[]}
   */
  lanesOf(bus, number) {
    const { transactions } = bus, end = transactions.column("termination");
    const coverage = new Coverage(bus, this.store, KINDS.length), label = `${bus.name} bus`;
    const lane = new SpansLane({ label, table: transactions, load: () => this.spansOfTransactions(bus), coverage, height: 40, colours: KINDS.map(kind => kind.colour), halves: true,
      text: row => bus.describe(row), mark: row => SHORT[/** @type {keyof typeof SHORT} */ (end.value(row))] ?? "" });
    /** @type {Lane[]} */
    const out = [new OccupancyLane(`${bus.name} busy`, lane, coverage), lane];
    const phases = bus.tables.get("data_phases");
    if (phases?.n) out.push(this.lanesOfWords(bus, phases));
    const bursts = bus.tables.get("bursts");
    if (bursts?.n) out.push(this.spansOf(bursts, `${bus.name} DMA`, "start_us", "last_data_us", row => BURSTS.indexOf(String(bursts.value("kind", row))), true, row => `${String(bursts.value("kind", row)).replace(/_/g, " ")} ${bursts.value("bytes", row)} B`));
    const accesses = bus.tables.get("csr_accesses");
    if (accesses?.n) out.push(this.spansOf(accesses, `${bus.name} registers`, "first_attempt_us", "data_us", () => 2, false, row => String(accesses.value("register", row) ?? accesses.value("command_name", row) ?? "access")));
    const problems = /** @type {Table} */ (bus.tables.get("problems"));
    if (problems.n) out.push(new ProblemsLane(`${bus.name} problems`, problems, () => ascending(bus.onAxis(problems, "sample"))));
    for (const wave of this.about.buses[number].waves ?? []) {
      out.push(new LineLane(wave.line, () => {
        const changes = new Column(wave.changes, this.store).floats();
        const { start_us: start, slope } = bus.about.axis, us = bus.about.us_per_sample;
        for (let n = 0; n < changes.length; n++) changes[n] = changes[n] * us * slope + start;
        return [changes, /** @type {Uint32Array} */ (new Column(wave.levels, this.store).numbers())];
      }, new Levels(bus, this.store, wave.overview)));
    }
    return out;
  }

  /** @param {BusRows} bus */
  spansOfTransactions(bus) {
    return new Spans(bus.start, bus.end, this.kindsOf(bus), KINDS.length);
  }

  /**
   * The kind of each transaction.
   * @param {BusRows} bus
   */
  kindsOf(bus) {
    const codes = bus.transactions.column("command").floats(), kinds = new Uint8Array(bus.transactions.n);
    const kindOf = Uint8Array.from(this.about.kinds), unknown = KINDS.length - 1;
    for (let row = 0; row < kinds.length; row++) kinds[row] = codes[row] >= 0 ? kindOf[codes[row]] : unknown;
    return kinds;
  }

  /**
   * The words that moved, each in the clock that ends with the edge at which it did.
   * @param {BusRows} bus
   * @param {Table} phases
   */
  lanesOfWords(bus, phases) {
    const load = () => {
      const end = phases.floats("time_us"), clock = bus.about.clock_mhz ? 1 / bus.about.clock_mhz : 0;
      const of = this.kindsOf(bus), kinds = Uint8Array.from(phases.floats("transaction"), row => of[row]);
      return new Spans(ascending(end.map(time => time - clock)), end, kinds, KINDS.length);
    };
    return new SpansLane({ label: `${bus.name} data`, table: phases, load, height: 32, colours: KINDS.map(kind => kind.colour), halves: true,
      text: row => this.store.has(DETAILS) ? valueText("data", phases.value("data", row), "") : "" });
  }

  /**
   * @param {Table} table
   * @param {string} label
   * @param {string} from
   * @param {string} to
   * @param {(row: number) => number} kind
   * @param {boolean} halves
   * @param {(row: number) => string} text
   */
  spansOf(table, label, from, to, kind, halves, text) {
    const load = () => {
      const start = table.floats(from), end = table.floats(to);
      for (let row = 0; row < end.length; row++) if (!(end[row] >= start[row])) end[row] = start[row];
      const kinds = Uint8Array.from({ length: table.n }, (_, row) => Math.max(kind(row), 0));
      return new Spans(ascending(start), end, kinds, KINDS.length);
    };
    return new SpansLane({ label, table, load, height: halves ? 32 : 18, colours: KINDS.map(kind => kind.colour), halves, text });
  }

  lanesOfFrames() {
    const { frames } = this;
    if (!frames) return [];
    const senders = frames.column("sender");
    return (senders.about.words ?? []).map(sender => {
      const load = () => Uint32Array.from(Array.from({ length: frames.n }, (_, row) => row).filter(row => senders.value(row) === sender));
      return new FramesLane(`frames of ${sender}`, frames, load);
    });
  }

  // --- drawing

  resize() {
    const scale = window.devicePixelRatio || 1, wide = this.canvas.clientWidth || 600;
    this.canvas.width = wide * scale;
    this.canvas.height = this.height * scale;
    this.axis.left = wide < NARROW ? 62 : 112;
    this.axis.right = wide;
    this.draw();
  }

  draw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      const began = performance.now();
      this.paint();
      this.milliseconds.push(performance.now() - began);
      this.toAddress();
    });
  }

  paint() {
    const pen = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d")), { axis } = this;
    const scale = window.devicePixelRatio || 1, style = getComputedStyle(this.home), height = this.height;
    const colours = Object.fromEntries(["ink", "soft", "line", "back", "read", "write", "other", "plain", "wire", "problem", "match", "onBar"].map(name => [name, style.getPropertyValue(`--${name}`).trim()]));
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, axis.right, height);
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    this.ruler(pen, colours);
    const places = this.lanes, rows = this.store.has(ROWS);
    pen.save();
    pen.beginPath();
    pen.rect(axis.left, RULER, axis.right - axis.left, height);
    pen.clip();
    for (const { lane, bus, top } of places) {
      const table = lane instanceof SpansLane || lane instanceof ProblemsLane || lane instanceof FramesLane ? lane.table.name : "";
      const chosen = this.chosen && this.chosen.bus === bus && this.chosen.table === table ? this.chosen.row : -1;
      lane.draw({ pen, axis, colours, matches: table === "transactions" ? this.matches[bus] : null, chosen, rows }, top);
    }
    pen.restore();
    pen.fillStyle = colours.ink;
    for (const { lane, top } of places) pen.fillText(lane.label, 4, top + Math.min(lane.height / 2, 14), axis.left - 8);
    this.drawMarkers(pen, colours);
  }

  /**
   * @param {CanvasRenderingContext2D} pen
   * @param {Record<string, string>} colours
   */
  ruler(pen, colours) {
    const { axis } = this, { step, times } = axis.ticks();
    for (const time of times) {
      const x = Math.round(axis.x(time));
      if (x < axis.left) continue;
      pen.fillStyle = colours.line;
      pen.fillRect(x, RULER - 8, 1, this.height - RULER + 8);
      const text = timeText(time, step);
      if (x + 3 + pen.measureText(text).width > axis.right) continue;
      pen.fillStyle = colours.ink;
      pen.fillText(text, x + 3, RULER - 16);
    }
  }

  /**
   * @param {CanvasRenderingContext2D} pen
   * @param {Record<string, string>} colours
   */
  drawMarkers(pen, colours) {
    const { axis } = this;
    this.markers.forEach((time, n) => {
      const x = axis.x(time);
      if (x < axis.left || x > axis.right) return;
      pen.fillStyle = colours.problem;
      pen.fillRect(x, 0, 1.5, this.height);
      const before = n ? ` (${durationText(time - this.markers[n - 1])} after ${n})` : "";
      const text = `${n + 1}: ${timeText(time, 0.001)}${before}`, wide = pen.measureText(text).width + 6;
      const left = Math.min(x + 2, axis.right - wide);
      pen.fillStyle = colours.back;
      pen.fillRect(left, this.height - 18 * (n % 3 + 1), wide, 16);
      pen.fillStyle = colours.ink;
      pen.fillText(text, left + 3, this.height - 18 * (n % 3 + 1) + 8);
    });
  }

  // --- what was chosen

  /**
   * @param {number} x
   * @param {number} y
   * @returns {Choice | null}
   */
  under(x, y) {
    const at = this.lanes.find(({ lane, top }) => y >= top - 4 && y <= top + lane.height + 4);
    if (!at || x < this.axis.left || !this.store.has(ROWS)) return null;
    const hit = at.lane.hit(this.axis, x, y - at.top);
    return hit && { bus: at.bus, ...hit };
  }

  /**
   * @param {Choice} choice
   * @returns {Table}
   */
  tableOf(choice) {
    return choice.bus < 0 ? /** @type {Table} */ (this.frames) : /** @type {Table} */ (this.buses[choice.bus].tables.get(choice.table));
  }

  /**
   * When a row is, us on the run's axis.
   * @param {Choice} choice
   * @returns {[number, number]}
   */
  timeOf(choice) {
    if (choice.table === "transactions") return [this.buses[choice.bus].start[choice.row], this.buses[choice.bus].end[choice.row]];
    const table = this.tableOf(choice);
    const times = [...table.columns.keys()].filter(name => /(start|end|first_data|last_data|attempt|data|time|csr_first|csr_last)_us$/.test(name) && !/^(t_nic|wire|dma|gap|rx_dma)_us/.test(name))
      .map(name => table.value(name, choice.row)).filter(value => value !== null);
    return [Math.min(...times), Math.max(...times)];
  }

  /**
   * @param {Choice | null} choice
   * @param {boolean} [move]
   */
  choose(choice, move = false) {
    this.chosen = choice;
    if (choice && move) {
      const [from, to] = this.timeOf(choice), span = this.axis.high - this.axis.low;
      if (Number.isFinite(from)) {
        if (to - from > span) this.axis.show(from - 0.1 * (to - from), to + 0.1 * (to - from));
        else if (from < this.axis.low || to > this.axis.high) this.axis.show((from + to - span) / 2, (from + to + span) / 2);
      }
    }
    this.showChoice();
    this.draw();
  }

  showChoice() {
    const { chosen } = this;
    if (!chosen) {
      this.panel.replaceChildren(element("p", {}, ["Click a bar: what it is stands here, with its problems and what belongs to it."]));
      return;
    }
    if (!this.store.has(DETAILS)) {
      this.panel.replaceChildren(element("p", {}, ["Its columns are still being unpacked."]));
      return;
    }
    const table = this.tableOf(chosen), bus = chosen.bus < 0 ? null : this.buses[chosen.bus];
    const facts = [...table.columns.entries()].filter(([name]) => !HELPERS.includes(name)).map(([name, column]) => [
      element("dt", { title: column.about.meaning }, [name]),
      element("dd", {}, [valueText(name, table.value(name, chosen.row), column.about.unit)]),
    ]);
    this.panel.replaceChildren(
      element("h2", {}, [`${bus ? `${bus.name}: ` : ""}${ROW_OF[/** @type {keyof typeof ROW_OF} */ (chosen.table)]} ${chosen.row}`]),
      ...(bus && chosen.table === "transactions" ? [element("p", {}, [bus.describe(chosen.row)])] : []),
      ...this.linksOf(chosen), ...(bus && chosen.table === "transactions" ? this.wordsOf(bus, chosen.row) : []), element("dl", {}, facts.flat()),
    );
  }

  /**
   * The data words of a transaction, where the page has them.
   * @param {BusRows} bus
   * @param {number} row
   * @returns {HTMLElement[]}
   */
  wordsOf(bus, row) {
    const phases = bus.tables.get("data_phases"), [from, to] = bus.phasesOf(row);
    if (!phases || from === to) return [];
    const words = Array.from({ length: Math.min(to - from, MOST_WORDS) }, (_, n) => {
      const enables = phases.value("byte_enables", from + n), parity = phases.value("parity_ok", from + n) === false ? " ▲ parity" : "";
      return element("li", {}, [`${valueText("data", phases.value("data", from + n), "")}${enables ? ` C/BE# ${enables.toString(2).padStart(4, "0")}` : ""}${parity}`]);
    });
    const many = `${to - from} data word${to - from === 1 ? "" : "s"}${to - from > MOST_WORDS ? `, the first ${MOST_WORDS}` : ""}`;
    return [element("details", { class: "words", open: "" }, [element("summary", {}, [many]), element("ol", { start: "0" }, words)])];
  }

  /**
   * What belongs to a row: problems, attempts, its burst, its frame.
   * @param {Choice} choice
   * @returns {HTMLElement[]}
   */
  linksOf(choice) {
    const bus = choice.bus < 0 ? null : this.buses[choice.bus];
    /** @type {[string, Choice][]} */
    const links = [];
    const table = this.tableOf(choice);
    if (bus && choice.table === "transactions") {
      this.linksToAttempts(bus, choice, choice.row, links);
      const burst = bus.burstOf[choice.row], access = bus.accessOf(choice.row);
      if (burst >= 0) links.push([`DMA burst ${burst}`, { ...choice, table: "bursts", row: burst }]);
      if (access >= 0) links.push([`register access ${access}`, { ...choice, table: "csr_accesses", row: access }]);
    }
    if (bus && choice.table === "csr_accesses") {
      const row = bus.transactionAt(table.value("first_attempt_us", choice.row));
      if (row >= 0) this.linksToAttempts(bus, { ...choice, table: "transactions", row: -1 }, row, links);
    }
    if (bus && choice.table === "data_phases") {
      links.push(["its transaction", { ...choice, table: "transactions", row: Number(table.value("transaction", choice.row)) }]);
    }
    if (bus && table.columns.has("frame") && this.frames && table.value("frame", choice.row) !== null) {
      const row = Number(table.value("frame", choice.row));
      links.push([`frame ${row}`, { bus: -1, table: "frames", row }]);
    }
    if (bus && choice.table === "problems" && table.value("transaction", choice.row) !== null) {
      links.push(["its transaction", { ...choice, table: "transactions", row: Number(table.value("transaction", choice.row)) }]);
    }
    if (choice.table === "bursts" && bus) {
      const row = bus.burstOf.indexOf(choice.row);
      if (row >= 0) links.push(["its first transaction", { ...choice, table: "transactions", row }]);
    }
    if (choice.table === "frames") {
      for (const [host, column] of [["sender", "send_burst"], ["receiver", "receive_burst"]]) {
        const number = this.buses.findIndex(one => one.name === table.value(host, choice.row)), row = table.value(column, choice.row);
        if (number >= 0 && row !== null) links.push([column.replace("_", " "), { bus: number, table: "bursts", row: Number(row) }]);
      }
    }
    const problems = bus && choice.table === "transactions" ? bus.problemsOf(choice.row) : [];
    const texts = problems.map(row => element("li", {}, [`▲ ${/** @type {Table} */ (bus?.tables.get("problems")).value("text", row)}`]));
    const buttons = links.map(([text, to]) => {
      const out = element("button", { type: "button" }, [text]);
      out.addEventListener("click", () => this.choose(to, true));
      return out;
    });
    return [...(texts.length ? [element("ul", { class: "problems" }, texts)] : []), ...(buttons.length ? [element("p", { class: "links" }, buttons)] : [])];
  }

  /**
   * The other attempts of a retried access; of an access without a retry its transaction.
   * @param {BusRows} bus
   * @param {Choice} choice the row that is shown: no link leads to itself
   * @param {number} row of one of the attempts
   * @param {[string, Choice][]} links
   */
  linksToAttempts(bus, choice, row, links) {
    const attempts = bus.attempts(row), all = attempts.length;
    attempts.forEach((other, n) => {
      if (other === choice.row || (n >= MOST_ATTEMPTS && n < all - 1)) return;
      links.push([all > 1 ? `attempt ${n + 1} of ${all}` : "its transaction", { ...choice, table: "transactions", row: other }]);
    });
  }

  // --- search and markers

  /** @param {string} text */
  search(text) {
    this.query.value = text;
    this.found = [];
    this.matches = this.buses.map(() => null);
    this.told.classList.remove("wrong");
    this.told.textContent = "";
    if (text.trim() && !this.store.has(DETAILS)) this.told.textContent = "still unpacking";
    else if (text.trim()) {
      try {
        this.buses.forEach((bus, number) => {
          const held = condition(text, bus.transactions, this.about.commands), rows = new Uint8Array(bus.transactions.n), starts = [];
          for (let row = 0; row < rows.length; row++) if (held(row)) { rows[row] = 1; starts.push(bus.start[row]); this.found.push([number, row]); }
          this.matches[number] = { rows, starts: new Ascending(Float64Array.from(starts)) };
        });
        if (this.buses.length > 1) this.found.sort((a, b) => this.buses[a[0]].start[a[1]] - this.buses[b[0]].start[b[1]]);
        this.told.textContent = `${this.found.length.toLocaleString("en")} found`;
      } catch (error) {
        this.found = [];
        this.matches = this.buses.map(() => null);
        this.told.classList.add("wrong");
        this.told.textContent = /** @type {Error} */ (error).message;
      }
    }
    this.draw();
  }

  /**
   * Go to what was found next or before.
   * @param {1 | -1} way
   */
  step(way) {
    if (!this.found.length) return;
    const { chosen } = this;
    const time = chosen ? this.timeOf(chosen)[0] : (this.axis.low + this.axis.high) / 2;
    const times = this.found.map(([bus, row]) => this.buses[bus].start[row]);
    let at = firstFrom(times, way > 0 ? time + 1e-9 : time) - (way > 0 ? 0 : 1);
    if (chosen && way > 0) {
      const same = this.found.findIndex(([bus, row]) => chosen.table === "transactions" && bus === chosen.bus && row === chosen.row);
      if (same >= 0) at = same + 1;
    }
    const [bus, row] = this.found[(at + this.found.length) % this.found.length];
    this.choose({ bus, table: "transactions", row }, true);
  }

  mark() {
    const time = Number.isNaN(this.pointer) ? (this.axis.low + this.axis.high) / 2 : this.axis.time(this.pointer);
    const at = this.markers.findIndex(one => Math.abs(one - time) < 6 * this.axis.step);
    if (at >= 0) this.markers.splice(at, 1);
    else this.markers = [...this.markers, time].sort((a, b) => a - b);
    this.draw();
  }

  // --- what people do

  listen() {
    const { canvas, axis } = this;
    new ResizeObserver(() => this.resize()).observe(this.stage);
    window.matchMedia?.("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    canvas.addEventListener("wheel", event => {
      if (!event.ctrlKey && event.shiftKey) axis.pan(event.deltaY > 0 ? 0.1 : -0.1);
      else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) axis.pan(event.deltaX / (axis.right - axis.left));
      else axis.zoom(event.deltaY > 0 ? 1.25 : 0.8, axis.time(event.offsetX));
      event.preventDefault();
      this.draw();
    }, { passive: false });
    this.listenToFingers();
    canvas.addEventListener("keydown", event => this.key(event));
    this.query.addEventListener("input", () => this.search(this.query.value));
    this.query.addEventListener("keydown", event => {
      if (event.key === "Enter") this.step(event.shiftKey ? -1 : 1);
      if (event.key === "Escape") { this.search(""); canvas.focus(); }
    });
    window.addEventListener("hashchange", () => { this.fromAddress(); this.draw(); });
  }

  listenToFingers() {
    const { canvas, axis } = this;
    /** @type {Map<number, PointerEvent>} */
    const fingers = new Map();
    let moved = 0;
    canvas.addEventListener("pointerdown", event => {
      canvas.setPointerCapture(event.pointerId);
      fingers.set(event.pointerId, event);
      moved = 0;
    });
    canvas.addEventListener("pointerup", event => {
      if (fingers.delete(event.pointerId) && moved < 4) this.choose(this.under(event.offsetX, event.offsetY));
    });
    canvas.addEventListener("pointercancel", event => fingers.delete(event.pointerId));
    canvas.addEventListener("pointerleave", () => { this.pointer = NaN; this.hint.style.display = "none"; });
    canvas.addEventListener("pointermove", event => {
      this.pointer = event.offsetX;
      const before = fingers.get(event.pointerId);
      if (!before) return this.tell(event);
      const other = [...fingers.values()].find(one => one.pointerId !== event.pointerId);
      if (other) {
        const was = Math.abs(before.offsetX - other.offsetX), is = Math.abs(event.offsetX - other.offsetX);
        if (was > 5 && is > 5) axis.zoom(was / is, axis.time((event.offsetX + other.offsetX) / 2));
      } else axis.pan((before.offsetX - event.offsetX) / (axis.right - axis.left));
      moved += Math.abs(event.offsetX - before.offsetX) + Math.abs(event.offsetY - before.offsetY);
      fingers.set(event.pointerId, event);
      this.draw();
      return undefined;
    });
  }

  /** @param {PointerEvent} event */
  tell(event) {
    const at = this.under(event.offsetX, event.offsetY), { hint } = this;
    hint.style.display = at ? "block" : "none";
    if (!at) return;
    const [from, to] = this.timeOf(at), bus = at.bus < 0 ? null : this.buses[at.bus];
    const lane = this.lanes.find(one => one.bus === at.bus && one.lane instanceof SpansLane && one.lane.table.name === at.table)?.lane;
    const what = lane instanceof SpansLane ? lane.text(at.row) : at.table === "problems" ? this.tableOf(at).value("text", at.row) : `frame ${at.row}`;
    const problems = bus && at.table === "transactions" ? bus.problemsOf(at.row).length : 0;
    hint.textContent = `${what}\n${timeText(from, 0.001)}, ${durationText(to - from)}${problems ? `\n▲ ${problems} problem${problems === 1 ? "" : "s"}` : ""}`;
    hint.style.left = `${Math.min(event.offsetX + 12, this.axis.right - hint.offsetWidth - 4)}px`;
    hint.style.top = `${event.offsetY + 16}px`;
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const { axis } = this;
    /** @type {Record<string, () => void>} */
    const keys = {
      ArrowLeft: () => axis.pan(-0.2), ArrowRight: () => axis.pan(0.2), "+": () => axis.zoom(0.5), "=": () => axis.zoom(0.5), "-": () => axis.zoom(2),
      ArrowUp: () => axis.zoom(0.5), ArrowDown: () => axis.zoom(2), 0: () => axis.show(axis.first, axis.last), Home: () => axis.show(axis.first, axis.last),
      n: () => this.neighbour(1), p: () => this.neighbour(-1), m: () => this.mark(), l: () => { this.waves = !this.waves; this.placeLanes(); },
      "/": () => this.query.focus(), Escape: () => this.choose(null), Enter: () => this.step(event.shiftKey ? -1 : 1),
    };
    const act = keys[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
    this.draw();
  }

  /**
   * Choose the next or the last row of the same table.
   * @param {1 | -1} way
   */
  neighbour(way) {
    const { chosen, axis } = this;
    const bus = this.buses.findIndex(one => one.transactions.n);
    if (!chosen && bus < 0) return;
    const from = chosen ?? { bus, table: "transactions", row: firstFrom(this.buses[bus].start, axis.low) - (way > 0 ? 1 : 0) };
    const row = Math.min(Math.max(from.row + way, 0), this.tableOf(from).n - 1);
    this.choose({ ...from, row }, true);
  }

  // --- the place in the page's address

  toAddress() {
    const { axis, chosen } = this, parts = [`t=${axis.low.toFixed(4)},${axis.high.toFixed(4)}`];
    if (chosen) parts.push(`s=${chosen.bus},${chosen.table},${chosen.row}`);
    if (this.query.value) parts.push(`q=${encodeURIComponent(this.query.value)}`);
    if (this.markers.length) parts.push(`m=${this.markers.map(time => time.toFixed(4)).join(",")}`);
    const hash = `#${parts.join("&")}`;
    // What the address asked for is not yet chosen and searched before all is there.
    if (this.home.dataset.address !== undefined && hash !== this.hash && this.store.has(DETAILS)) {
      this.hash = hash;
      clearTimeout(this.later);
      this.later = setTimeout(() => history.replaceState(null, "", hash), 200);
    }
  }

  /** @param {string[]} wanted which parts of it */
  fromAddress(wanted = ["t", "m", "s", "q"]) {
    if (this.home.dataset.address === undefined || location.hash === this.hash) return;
    for (const part of location.hash.slice(1).split("&")) {
      const [name, value = ""] = [part.slice(0, part.indexOf("=")), part.slice(part.indexOf("=") + 1)];
      if (!wanted.includes(name)) continue;
      const numbers = value.split(",").map(Number);
      if (name === "t" && numbers.length === 2 && numbers.every(Number.isFinite)) this.axis.show(numbers[0], numbers[1]);
      if (name === "q") this.search(decodeURIComponent(value));
      if (name === "m" && numbers.every(Number.isFinite)) this.markers = numbers;
      const [bus, table, row] = value.split(",");
      const known = Number(bus) < 0 ? this.frames : this.buses[Number(bus)]?.tables.get(table);
      if (name === "s" && known && Number(row) < known.n) this.choose({ bus: Number(bus), table, row: Number(row) });
    }
  }
}

/**
 * Numbers that hardly fall: each at least the one before; what is unknown is where the one before is.
 * @param {Float64Array} numbers
 */
function ascending(numbers) {
  let before = -Infinity;
  for (let n = 0; n < numbers.length; n++) before = numbers[n] = numbers[n] >= before ? numbers[n] : before;
  return numbers;
}

/** Let the browser show what is drawn. */
function pause() {
  return new Promise(done => setTimeout(done, 20));
}

/**
 * Show a run in an element; all is there when it returns.
 * @param {HTMLElement} home
 * @param {AboutRun} about
 * @param {string} packed
 */
export async function show(home, about, packed) {
  const store = new Store(packed);
  await store.unpackNext();
  const view = new View(home, about, store);
  await view.load();
  return view;
}
