// The condition language of `docs/conditions.md`, for the search: the same text, the same rows as in Python.
// `tests/condition_cases.json` holds both to that.

import { Column, Derived, Table } from "./columns.js";

/**
 * @typedef {"truth" | "text" | "whole" | "sum" | "real"} Kind
 * @typedef {{kind: Kind, value: (row: number) => any, constant?: any, word?: number, column?: string}} Operand
 * @typedef {{text: string, at: number, kind: "name" | "number" | "string" | "sign" | "end", value?: any}} Token
 */

export class ConditionError extends Error {}

const KEYWORDS = ["and", "or", "not", "in", "is", "None", "True", "False"];
const SIGNS = /^(<<|>>|\/\/|<=|>=|==|!=|[-+*\/%&|^<>()\[\]{},])/;
const NAME = /^[A-Za-z_]\w*/;
const NUMBER = /^(0[xX][0-9a-fA-F](?:_?[0-9a-fA-F])*|0[bB][01](?:_?[01])*|0[oO][0-7](?:_?[0-7])*|(?:\d(?:_?\d)*)?\.?\d(?:_?\d)*\.?(?:[eE][-+]?\d+)?)/;
const TERMINATIONS = ["completion", "retry", "disconnect_with_data", "disconnect_without_data", "target_abort",
  "master_abort", "truncated", "unknown"];

/**
 * @param {string} text
 * @returns {Token[]}
 */
function tokens(text) {
  /** @type {Token[]} */
  const out = [];
  let at = 0;
  while (at < text.length) {
    const rest = text.slice(at);
    const blank = /^\s+/.exec(rest);
    if (blank) { at += blank[0].length; continue; }
    const quoted = /^'([^'\\]|\\.)*'|^"([^"\\]|\\.)*"/.exec(rest);
    const name = NAME.exec(rest), number = NUMBER.exec(rest), sign = SIGNS.exec(rest);
    if (quoted) out.push({ kind: "string", text: quoted[0], at, value: quoted[0].slice(1, -1).replace(/\\(.)/g, "$1") });
    else if (name) out.push({ kind: "name", text: name[0], at });
    else if (number) out.push({ kind: "number", text: number[0], at, value: numberOf(number[0]) });
    else if (sign) out.push({ kind: "sign", text: sign[0], at });
    else throw new ConditionError(`at character ${at + 1}: ${JSON.stringify(rest[0])} is not allowed here`);
    at += out[out.length - 1].text.length;
  }
  out.push({ kind: "end", text: "the end", at });
  return out;
}

/**
 * @param {string} text
 * @returns {{whole: boolean, value: number | bigint}}
 */
function numberOf(text) {
  const plain = text.replace(/_/g, "");
  if (/^0[xXbBoO]/.test(plain) || /^\d+$/.test(plain)) {
    if (/^0\d*[1-9]/.test(plain)) throw new ConditionError(`${text}: leading zeros are not allowed`);
    const value = BigInt(plain);
    return { whole: true, value: value <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(value) : value };
  }
  return { whole: false, value: Number(plain) };
}

/** @type {Record<string, [(a: number, b: number) => number, (a: bigint, b: bigint) => bigint]>} */
const EXACT = {
  "+": [(a, b) => a + b, (a, b) => a + b],
  "-": [(a, b) => a - b, (a, b) => a - b],
  "*": [(a, b) => a * b, (a, b) => a * b],
  "//": [(a, b) => Math.floor(a / b), (a, b) => a / b],
  "%": [(a, b) => a % b, (a, b) => a % b],
};
/** @type {Record<string, (a: bigint, b: bigint) => bigint>} */
const BITS = {
  "&": (a, b) => a & b,
  "|": (a, b) => a | b,
  "^": (a, b) => a ^ b,
  "<<": (a, b) => BigInt.asUintN(64, a << b),
  ">>": (a, b) => a >> b,
};
/** @type {Record<string, (a: any, b: any) => boolean>} */
const COMPARE = {
  "<": (a, b) => a < b,
  "<=": (a, b) => a <= b,
  ">": (a, b) => a > b,
  ">=": (a, b) => a >= b,
  "==": (a, b) => a == b, // eslint-disable-line eqeqeq -- a bigint may equal a number
  "!=": (a, b) => a != b, // eslint-disable-line eqeqeq
};

/** @param {bigint} value */
const small = value => (value <= 9007199254740991n && value >= -9007199254740991n ? Number(value) : value);

const isNumber = (/** @type {Operand} */ one) => one.kind === "whole" || one.kind === "sum" || one.kind === "real";

/** Reads one condition: a method for each level of precedence, as in Python's grammar. */
class Reader {
  /**
   * @param {string} text
   * @param {Table} table
   * @param {string[]} commands names of the bus commands 0 to 15
   */
  constructor(text, table, commands) {
    this.tokens = tokens(text);
    this.table = table;
    this.commands = commands;
    this.next = 0;
    this.depth = 0;
  }

  /** @returns {Token} */
  get token() { return this.tokens[this.next]; }

  /** @param {string} text */
  take(text) {
    const found = this.token.text === text && this.token.kind !== "string";
    if (found) this.next++;
    return found;
  }

  /**
   * @param {string} why
   * @param {Token} [token]
   * @returns {never}
   */
  refuse(why, token = this.token) {
    throw new ConditionError(`at character ${token.at + 1}, ${token.text}: ${why}`);
  }

  read() {
    if (this.token.kind === "end") throw new ConditionError("it is empty");
    const whole = this.or();
    if (this.tokens[this.next].kind !== "end") this.refuse("this is not allowed here");
    return this.truth(whole, this.tokens[0]);
  }

  /**
   * @param {Operand} one
   * @param {Token} token
   */
  truth(one, token) {
    if (one.kind !== "truth") this.refuse(`it is a ${one.kind}, neither true nor false; compare it with something`, token);
    return one;
  }

  /** @returns {Operand} */
  or() {
    let token = this.token, left = this.and();
    while (this.take("or")) {
      const a = this.truth(left, token).value, second = this.token, b = this.truth(this.and(), second).value;
      left = { kind: "truth", value: row => {
        const one = a(row);
        if (one === true) return true;
        const two = b(row);
        return two === true ? true : one === null || two === null ? null : false;
      } };
    }
    return left;
  }

  /** @returns {Operand} */
  and() {
    let token = this.token, left = this.not();
    while (this.take("and")) {
      const a = this.truth(left, token).value, second = this.token, b = this.truth(this.not(), second).value;
      left = { kind: "truth", value: row => {
        const one = a(row);
        if (one === false) return false;
        const two = b(row);
        return two === false ? false : one === null || two === null ? null : true;
      } };
    }
    return left;
  }

  /** @returns {Operand} */
  not() {
    if (!this.take("not")) return this.comparison();
    const token = this.token, one = this.truth(this.not(), token).value;
    return { kind: "truth", value: row => { const value = one(row); return value === null ? null : !value; } };
  }

  /** @returns {Operand} */
  comparison() {
    let left = this.bits(0);
    /** @type {((row: number) => any)[]} */
    const links = [];
    for (;;) {
      const token = this.token;
      if (token.kind === "sign" && token.text in COMPARE) {
        this.next++;
        const right = this.bits(0);
        links.push(this.compared(left, token.text, right, token));
        left = right;
      } else if (this.take("is")) {
        const turned = this.take("not"), value = left.value;
        if (!this.take("None")) this.refuse("`is` asks for None only: write `is None` or `is not None`");
        links.push(row => (value(row) === null) !== turned);
      } else if (token.kind === "name" && (token.text === "in" || token.text === "not")) {
        this.next++;
        if (token.text === "not" && !this.take("in")) this.refuse("after it comes `in`");
        const found = this.member(left);
        links.push(token.text === "in" ? found : row => { const one = found(row); return one === null ? null : !one; });
      } else break;
    }
    if (!links.length) return left;
    return { kind: "truth", value: row => {
      let unknown = false;
      for (const link of links) {
        const held = link(row);
        if (held === false) return false;
        unknown ||= held === null;
      }
      return unknown ? null : true;
    } };
  }

  /** @param {Operand} left */
  member(left) {
    const open = this.token, close = { "(": ")", "[": "]", "{": "}" }[open.text];
    if (!close) this.refuse("`in` needs values in parentheses, such as (config_read, config_write)");
    this.next++;
    /** @type {((row: number) => any)[]} */
    const links = [];
    let commas = 0;
    while (!this.take(/** @type {string} */ (close))) {
      if (links.length && !commas) this.refuse("a comma is missing");
      const token = this.token;
      links.push(this.compared(left, "==", this.or(), token));
      commas = this.take(",") ? 1 : 0;
      if (!commas && this.token.text !== close) this.refuse("a comma is missing");
      if (!commas && links.length === 1 && open.text === "(") {
        this.refuse("`in` needs values in parentheses, with a comma: (config_read,)", open);
      }
    }
    if (!links.length) this.refuse("`in` needs values in parentheses", open);
    return (/** @type {number} */ row) => {
      let unknown = false;
      for (const link of links) {
        const equal = link(row);
        if (equal === true) return true;
        unknown ||= equal === null;
      }
      return unknown ? null : false;
    };
  }

  /**
   * @param {Operand} left
   * @param {string} sign
   * @param {Operand} right
   * @param {Token} token
   * @returns {(row: number) => any}
   */
  compared(left, sign, right, token) {
    const one = this.asNumber(left, right), two = this.asNumber(right, left);
    const same = one.kind === two.kind || (isNumber(one) && isNumber(two));
    if (!same) this.refuse(`a ${one.kind} cannot be compared with a ${two.kind}`, token);
    if (one.kind === "truth" && sign !== "==" && sign !== "!=") this.refuse("true and false have no order; use == or !=", token);
    const a = one.value, b = two.value, compare = COMPARE[sign];
    return row => {
      const x = a(row), y = b(row);
      return x === null || y === null ? null : compare(x, y);
    };
  }

  /**
   * A command's name beside a number as its number.
   * @param {Operand} value
   * @param {Operand} beside
   * @returns {Operand}
   */
  asNumber(value, beside) {
    if (value.kind !== "text" || value.constant === undefined || !isNumber(beside)) return value;
    const number = value.word ?? (beside.column === "command" ? this.commands.indexOf(value.constant) : -1);
    return number < 0 ? value : { kind: "whole", value: () => number, constant: number };
  }

  /**
   * | ^ & shifts sums products, in Python's order.
   * @param {number} level
   * @returns {Operand}
   */
  bits(level) {
    const signs = [["|"], ["^"], ["&"], ["<<", ">>"], ["+", "-"], ["*", "/", "//", "%"]][level];
    if (!signs) return this.unary();
    let left = this.bits(level + 1);
    for (;;) {
      const token = this.token;
      if (token.kind !== "sign" || !signs.includes(token.text)) return left;
      this.next++;
      left = this.worked(left, token.text, this.bits(level + 1), token);
    }
  }

  /** @returns {Operand} */
  unary() {
    const token = this.token;
    if (++this.depth > 200) this.refuse("it is nested too deeply");
    if (this.take("-")) {
      const inner = this.worked({ kind: "whole", value: () => 0, constant: 0 }, "-", this.unary(), token);
      this.depth--;
      return inner;
    }
    if (this.take("+")) { const inner = this.unary(); this.depth--; return inner; }
    const out = this.atom();
    this.depth--;
    return out;
  }

  /**
   * @param {Operand} left
   * @param {string} sign
   * @param {Operand} right
   * @param {Token} token
   * @returns {Operand}
   */
  worked(left, sign, right, token) {
    for (const one of [left, right]) if (!isNumber(one)) this.refuse(`${sign} needs numbers, and this is a ${one.kind}`, token);
    if ("/%".includes(sign[0]) && (right.constant === 0 || right.constant === 0n)) this.refuse("division by zero", token);
    const a = left.value, b = right.value;
    /**
     * @param {(x: any, y: any) => any} work
     * @param {Kind} kind
     * @returns {Operand}
     */
    const of = (work, kind) => ({ kind, value: row => {
      const x = a(row), y = b(row);
      return x === null || y === null ? null : work(x, y);
    } });
    const real = left.kind === "real" || right.kind === "real";
    if (sign === "/") return of((x, y) => Number(x) / Number(y), "real");
    if (real && sign in EXACT && sign.length === 1 && sign !== "%") return of((x, y) => EXACT[sign][0](Number(x), Number(y)), "real");
    const whole = left.kind === "whole" && right.kind === "whole";
    if (sign in EXACT && (whole || "+-*".includes(sign))) {
      const [quick, exact] = EXACT[sign];
      return of((x, y) => {
        if (typeof x === "number" && typeof y === "number") {
          const result = quick(x, y);
          if (Number.isSafeInteger(result)) return result;
        }
        return "/%".includes(sign[0]) && !Number(y) ? null : small(exact(BigInt(x), BigInt(y)));
      }, "/%".includes(sign[0]) ? "whole" : "sum");
    }
    if (!(sign in BITS) || !whole) this.refuse(`${sign} needs columns of whole numbers or constants`, token);
    return of((x, y) => small(BITS[sign](BigInt(x), BigInt(y))), "whole");
  }

  /** @returns {Operand} */
  atom() {
    const token = this.token;
    this.next++;
    if (token.kind === "number") return { kind: token.value.whole ? "whole" : "real", value: () => token.value.value, constant: token.value.value };
    if (token.kind === "string") return { kind: "text", value: () => token.value, constant: token.value };
    if (token.text === "(" && token.kind === "sign") {
      if (++this.depth > 200) this.refuse("it is nested too deeply");
      const inner = this.or();
      this.depth--;
      if (!this.take(")")) this.refuse("a closing parenthesis is missing");
      return inner;
    }
    if (token.kind !== "name") this.refuse("a column or a value is missing here", token);
    if (token.text === "True" || token.text === "False") {
      const truth = token.text === "True";
      return { kind: "truth", value: () => truth, constant: truth };
    }
    if (token.text === "None") this.refuse("nothing equals None: write `is None` or `is not None`", token);
    if (KEYWORDS.includes(token.text)) this.refuse("a column or a value is missing here", token);
    return this.named(token);
  }

  /**
   * @param {Token} token
   * @returns {Operand}
   */
  named(token) {
    const column = this.table.columns.get(token.text);
    if (column instanceof Column || column instanceof Derived) {
      return { kind: column.about.type, value: row => column.value(row), column: token.text };
    }
    const command = this.commands.indexOf(token.text);
    if (command >= 0) return { kind: "text", value: () => token.text, constant: token.text, word: command };
    if (TERMINATIONS.includes(token.text)) return { kind: "text", value: () => token.text, constant: token.text };
    const names = [...this.table.columns.keys(), ...this.commands, ...TERMINATIONS];
    const near = names.map(name => ({ name, far: distance(name, token.text) })).sort((a, b) => a.far - b.far).slice(0, 3);
    return this.refuse(`there is no column ${token.text}; the nearest: ${near.map(one => one.name).join(", ")}`, token);
  }
}

/**
 * Letters to add, remove or change.
 * @param {string} a
 * @param {string} b
 */
function distance(a, b) {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      next.push(Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1)));
    }
    row = next;
  }
  return row[b.length];
}

/**
 * Read a condition on the rows of a table.
 * @param {string} text
 * @param {Table} table
 * @param {string[]} commands names of the bus commands 0 to 15
 * @returns {(row: number) => boolean} whether a row fulfils it; null fulfils nothing
 */
export function condition(text, table, commands) {
  const { value } = new Reader(text, table, commands).read();
  return row => value(row) === true;
}
