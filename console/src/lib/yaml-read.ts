// Reads YAML of the simple form in which objects are written. What it does not surely understand is an error: a text that is
// read wrongly must not be merged.

interface Line {
  number: number;
  indent: number;
  text: string;
}

/** Plain words that mean other things to other readers. */
const AMBIGUOUS = /^(y|n|yes|no|on|off|true|false|null|nan|\.inf|[-+]\.inf|\.nan)$/i;
const NUMBER_LIKE = /^[-+.]?\d/;
/** A uid, which may begin with digits. No YAML reads it as a number or a time. */
const UID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** What follows a backslash in double quotes, and what it means. */
const ESCAPES: Record<string, string> = {
  ...{ '0': '\0', a: '\x07', b: '\b', t: '\t', n: '\n', v: '\v', f: '\f', r: '\r', e: '\x1b', ' ': ' ' },
  ...{ '"': '"', '/': '/', '\\': '\\', N: '\x85', _: '\xa0', L: '\u2028', P: '\u2029' },
};

class Reader {
  readonly #lines: Line[] = [];
  readonly #raw: string[];
  #at = 0;

  constructor(text: string) {
    this.#raw = text.split('\n');
    this.#raw.forEach((raw, index) => {
      if (/[\r\u0085\u2028\u2029]/.test(raw)) throw fault({ number: index + 1 }, 'a line end of another kind');
      const text = raw.replace(/\s+$/, '');
      const indent = /^ */.exec(text)?.[0].length ?? 0;
      this.#lines.push({ number: index + 1, indent, text: text.slice(indent) });
    });
  }

  read(): unknown {
    if (this.#peek()?.text === '---') this.#at++;
    const first = this.#peek();
    if (!first) return null;
    const value = this.#block(first.indent);
    const rest = this.#peek();
    if (rest) throw fault(rest, 'the indentation is wrong');
    return value;
  }

  /** The next line that is neither empty nor a comment. */
  #peek(): Line | undefined {
    while (this.#at < this.#lines.length && /^(#|$)/.test(this.#lines[this.#at]?.text ?? '')) this.#at++;
    const line = this.#lines[this.#at];
    if (line?.text.startsWith('\t')) throw fault(line, 'a tab');
    return line;
  }

  #block(indent: number): unknown {
    const line = this.#peek() as Line;
    if (/^-( |$)/.test(line.text)) return this.#list(indent);
    if (keyOf(line)) return this.#map(indent);
    this.#at++;
    return scalar(line, line.text);
  }

  #list(indent: number): unknown[] {
    const list: unknown[] = [];
    for (let line = this.#peek(); line && line.indent === indent && /^-( |$)/.test(line.text); line = this.#peek()) {
      const rest = line.text.slice(1);
      const inner = rest.trimStart();
      if (inner === '' || inner.startsWith('#')) {
        this.#at++;
        list.push(this.#nested(indent));
      } else {
        // The item begins on the line of its dash, as if it were on a line of its own.
        line.indent += 1 + rest.length - inner.length;
        line.text = inner;
        list.push(/^[|>]/.test(inner) ? this.#literal(line, inner, indent) : this.#block(line.indent));
      }
    }
    return list;
  }

  #map(indent: number): Record<string, unknown> {
    const map: Record<string, unknown> = {};
    for (let line = this.#peek(); line && line.indent === indent; line = this.#peek()) {
      const found = keyOf(line);
      if (!found) {
        if (/^-( |$)/.test(line.text)) break;
        throw fault(line, 'no field');
      }
      const { key, rest } = found;
      if (Object.hasOwn(map, key) || key === '__proto__') throw fault(line, `the field ${key} is there twice`);
      if (/^[|>]/.test(rest)) {
        map[key] = this.#literal(line, rest, indent);
        continue;
      }
      this.#at++;
      map[key] = rest === '' || rest.startsWith('#') ? this.#nested(indent, true) : scalar(line, rest);
    }
    return map;
  }

  /** The value below a field or a dash. A list may be as far to the left as its field. */
  #nested(indent: number, isField = false): unknown {
    const line = this.#peek();
    if (!line) return null;
    if (line.indent > indent) return this.#block(line.indent);
    return isField && line.indent === indent && /^-( |$)/.test(line.text) ? this.#list(indent) : null;
  }

  /** A text of several lines that keeps its line ends. */
  #literal(line: Line, head: string, indent: number): string {
    const style = /^\|([1-9]?)([-+]?)$/.exec(head);
    if (!style) throw fault(line, 'a folded text');
    const [, digit = '', chomping = ''] = style;
    const start = this.#at + 1;
    let end = start;
    while (end < this.#lines.length && ((this.#lines[end]?.text ?? '') === '' || (this.#lines[end]?.indent ?? 0) > indent)) end++;
    this.#at = end;
    const lines = this.#lines.slice(start, end);
    const first = lines.find(({ text }) => text !== '');
    // Other readers disagree about texts of empty lines alone, and about lines of blanks.
    if (!first) throw fault(line, 'a text without lines');
    const margin = digit ? indent + Number(digit) : first.indent;
    if (lines.some((each) => each.text !== '' && each.indent < margin)) throw fault(line, 'the indentation is wrong');
    const raw = this.#raw.slice(start, end);
    const blank = raw.findIndex((each, index) => lines[index]?.text === '' && each.length > margin);
    if (blank >= 0) throw fault(lines[blank] ?? line, 'a line of blanks');
    // The last line of the document has no line end. If it is empty, it is what follows the last line end.
    const isLast = end === this.#lines.length;
    const text = raw.map((each) => each.slice(margin)).join('\n') + (isLast ? '' : '\n');
    if (chomping === '+') return text;
    const trimmed = text.replace(/\n+$/, '');
    return chomping === '-' || trimmed === text ? trimmed : `${trimmed}\n`;
  }
}

function fault(line: { number: number }, what: string): Error {
  return new Error(`line ${line.number}: ${what}`);
}

/** The field at the start of a line, and what follows it. */
function keyOf(line: Line): { key: string; rest: string } | undefined {
  if (/^["']/.test(line.text)) {
    const { value, end } = quoted(line, line.text);
    const rest = line.text.slice(end);
    return /^:(\s|$)/.test(rest) ? { key: value, rest: rest.slice(1).trimStart() } : undefined;
  }
  const found = /^([^\s\-?:,[\]{}#&*!|>'"%@`][^#]*?|-[^\s#][^#]*?)\s*:(?:\s+(.*))?$/.exec(line.text);
  if (!found) return undefined;
  const key = found[1] ?? '';
  // Only a text is the name of a field.
  if (key.includes(': ') || typeof plain(line, key) !== 'string') throw fault(line, 'a field that is no text');
  return { key, rest: (found[2] ?? '').trimStart() };
}

/** A quoted text at the start, and where it ends. */
function quoted(line: Line, text: string): { value: string; end: number } {
  const isDouble = text.startsWith('"');
  const found = (isDouble ? /^"(?:[^"\\]|\\.)*"/ : /^'(?:[^']|'')*'/).exec(text)?.[0];
  if (!found) throw fault(line, 'a quoted text of several lines');
  if (!isDouble) return { value: found.slice(1, -1).replaceAll("''", "'"), end: found.length };
  const value = found.slice(1, -1).replace(/\\(?:x(..)|u(.{4})|U(.{8})|(.))/g, (whole, ...parts: string[]) => {
    const code = parts[0] ?? parts[1] ?? parts[2];
    const char = code === undefined ? ESCAPES[parts[3] ?? ''] : /^[0-9a-f]+$/i.test(code) ? String.fromCodePoint(parseInt(code, 16)) : undefined;
    if (char === undefined) throw fault(line, `the escape ${whole}`);
    return char;
  });
  return { value, end: found.length };
}

function plain(line: Line, text: string): unknown {
  if (text === 'true' || text === 'false') return text === 'true';
  if (text === 'null' || text === '~') return null;
  if (AMBIGUOUS.test(text)) throw fault(line, `${text} without quotes`);
  if (/^-?\d+(\.\d+)?$/.test(text)) return number(line, text);
  // A version such as 1.2.3 is a text for every reader; a date or 1e3 is not.
  if (NUMBER_LIKE.test(text) && !UID.test(text) && !/^\d+\.\d+\.\d+[\w.-]*$/.test(text) && !/^\d*[a-z][a-z0-9-]*$/i.test(text)) throw fault(line, `${text} without quotes`);
  if (/^\d+e\d+$|^0[xob]/i.test(text)) throw fault(line, `${text} without quotes`);
  return text;
}

/** The greatest and the least integer that every reader keeps as it is. */
const MOST = 2n ** 64n - 1n;
const LEAST = -(2n ** 63n);

/** A number that is written back as the same text. A greater one than a double can hold is a bigint. */
function number(line: Line, text: string): number | bigint {
  const value = Number(text);
  if (String(value) === text && (!Number.isInteger(value) || Number.isSafeInteger(value))) return value;
  if (/^-?[1-9]\d{0,19}$/.test(text)) {
    const exact = BigInt(text);
    if (exact >= LEAST && exact <= MOST) return exact;
  }
  throw fault(line, `the number ${text}, which would be written in another way`);
}

/** A value on one line. */
function scalar(line: Line, text: string): unknown {
  const flow = new Flow(line, text);
  const value = flow.value(false);
  flow.end();
  return value;
}

/** Values between brackets and braces. */
class Flow {
  readonly #line: Line;
  readonly #text: string;
  #at = 0;

  constructor(line: Line, text: string) {
    this.#line = line;
    this.#text = text;
  }

  value(isInside: boolean): unknown {
    this.#space();
    const rest = this.#text.slice(this.#at);
    if (rest.startsWith('[')) return this.#list();
    if (rest.startsWith('{')) return this.#map();
    if (/^["']/.test(rest)) {
      const { value, end } = quoted(this.#line, rest);
      this.#at += end;
      return value;
    }
    if (/^[&*!|>%@`?]/.test(rest)) throw fault(this.#line, `the mark ${rest.slice(0, 1)}`);
    const text = ((isInside ? /^[^,[\]{}]*/ : /^.*/).exec(rest)?.[0] ?? '').replace(/\s+#.*$/, '').trimEnd();
    if (/:(\s|$)/.test(text)) throw fault(this.#line, 'a colon without quotes');
    this.#at += text.length;
    return text === '' ? null : plain(this.#line, text);
  }

  end(): void {
    const rest = this.#text.slice(this.#at);
    if (!/^\s*(\s#.*)?$/.test(rest)) throw fault(this.#line, 'text after the value');
  }

  #space(): void {
    while (this.#text[this.#at] === ' ') this.#at++;
  }

  #take(mark: string): boolean {
    this.#space();
    if (this.#text[this.#at] !== mark) return false;
    this.#at++;
    return true;
  }

  #list(): unknown[] {
    this.#at++;
    const list: unknown[] = [];
    while (!this.#take(']')) {
      if (this.#at >= this.#text.length) throw fault(this.#line, 'a list of several lines');
      list.push(this.value(true));
      if (!this.#take(',') && this.#text[this.#at] !== ']') throw fault(this.#line, 'a list of several lines');
    }
    return list;
  }

  #map(): Record<string, unknown> {
    this.#at++;
    const map: Record<string, unknown> = {};
    while (!this.#take('}')) {
      this.#space();
      const rest = this.#text.slice(this.#at);
      const isQuoted = /^["']/.test(rest);
      const found = isQuoted ? quoted(this.#line, rest) : { value: /^[^,[\]{}:"']+/.exec(rest)?.[0].trim() ?? '', end: /^[^,[\]{}:"']*/.exec(rest)?.[0].length ?? 0 };
      this.#at += found.end;
      if (found.value === '' || !this.#take(':') || found.value === '__proto__' || Object.hasOwn(map, found.value)) throw fault(this.#line, 'a field between braces');
      map[found.value] = this.value(true);
      if (!this.#take(',') && this.#text[this.#at] !== '}') throw fault(this.#line, 'braces of several lines');
    }
    return map;
  }
}

/** The value that a YAML text has. Throws if the text has a form that is read in more than one way, or in none. */
export function readYaml(text: string): unknown {
  return new Reader(text).read();
}
