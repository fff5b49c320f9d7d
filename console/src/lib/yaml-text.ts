// What the console does with YAML as text. The server reads and writes it.
import type { Status, StatusCause } from './types';

/** The text without a field of `metadata` that people rarely read. */
export function withoutMetadataField(yaml: string, field: string): string {
  const lines = yaml.split('\n');
  const start = lines.indexOf(`  ${field}:`);
  if (start < 0) return yaml;
  let end = start + 1;
  while (end < lines.length && /^( {2}-| {3})/.test(lines[end] ?? '')) end++;
  return [...lines.slice(0, start), ...lines.slice(end)].join('\n');
}

/** The YAML of the entries of a secret as that of the secret without its values, of a kind that can be applied. */
export function asSecret(yaml: string, kind: string): string {
  const entries = /^entries:(?: \[\]\n|\n((?:[-\s].*\n)*))/m.exec(yaml);
  const names = [...(entries?.[1] ?? '').matchAll(/^ {2}name: (.*)$|^- name: (.*)$/gm)].map((found) => found[1] ?? found[2]);
  const note = names.length > 0 ? `spec:\n  # Without data: ${names.join(', ')}` : 'spec:';
  return yaml.replace(entries?.[0] ?? '', '').replace(/^kind: SecretEntries$/m, `kind: ${kind}`).replace(/^spec:$/m, note);
}

/** Words that other readers take for something else than a text. */
const WORDS = /^(y|n|yes|no|on|off|true|false|null)$/i;

/** In double quotes. Some characters are line ends for YAML and not for JSON. */
function quoted(text: string): string {
  return JSON.stringify(text).replace(/[\u007f-\u009f\u2028\u2029\ufeff]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

function scalar(value: unknown): string {
  const isPlainText = typeof value === 'string' && /^[A-Za-z]([\w./:-]*[\w/-])?$/.test(value) && !WORDS.test(value);
  return typeof value === 'string' ? (isPlainText ? value : quoted(value)) : String(value);
}

/** A text of one line, as the server writes it: plain or in quotes. */
function textOf(scalar: string): string {
  if (scalar.startsWith("'")) return scalar.slice(1, -1).replaceAll("''", "'");
  if (!scalar.startsWith('"')) return scalar;
  try {
    return JSON.parse(scalar) as string;
  } catch {
    // Escapes that JSON does not have stay as they are.
    return scalar.slice(1, -1);
  }
}

/** The reason, message and causes of a Status that the server wrote. */
export function statusIn(yaml: string): Status {
  const field = (name: string, from: string, indent = '') => {
    const found = new RegExp(`^${indent}${name}: (.+)$`, 'm').exec(from)?.[1];
    return found === undefined ? {} : { [name]: textOf(found) };
  };
  const list = /^ {2}causes:\n((?: {2}- .*\n(?: {4}.*\n)*)+)/m.exec(yaml)?.[1] ?? '';
  const causes = list
    .split(/^ {2}- /m)
    .slice(1)
    .map((item): StatusCause => Object.assign({}, ...['field', 'message', 'reason'].map((name) => field(name, `    ${item}`, '    '))) as StatusCause);
  return { ...field('message', yaml), ...field('reason', yaml), ...(causes.length > 0 ? { details: { causes } } : {}) };
}

function isPlain(value: unknown): boolean {
  return typeof value !== 'object' || value === null;
}

function isEmpty(value: unknown): boolean {
  return typeof value === 'object' && value !== null && Object.keys(value).length === 0;
}

/** A value as YAML. */
export function toYaml(value: unknown, indent = ''): string {
  if (isPlain(value)) return `${indent}${scalar(value)}\n`;
  if (Array.isArray(value)) {
    if (value.length === 0) return `${indent}[]\n`;
    return value
      .map((item) => (isPlain(item) ? `${indent}- ${scalar(item)}\n` : `${indent}- ${toYaml(item, `${indent}  `).slice(indent.length + 2)}`))
      .join('');
  }
  const entries = Object.entries(value as object).filter(([, each]) => each !== undefined);
  if (entries.length === 0) return `${indent}{}\n`;
  return entries
    .map(([field, each]) => {
      const name = scalar(field);
      if (isPlain(each)) return `${indent}${name}: ${scalar(each)}\n`;
      if (Array.isArray(each) && each.every(isPlain)) return `${indent}${name}: [${each.map(scalar).join(', ')}]\n`;
      if (isEmpty(each)) return `${indent}${name}: ${toYaml(each)}`;
      return `${indent}${name}:\n${toYaml(each, `${indent}  `)}`;
    })
    .join('');
}
