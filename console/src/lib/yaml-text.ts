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

/** The resourceVersion that a YAML text has. */
export function versionIn(yaml: string): string {
  return /^ {2}resourceVersion: "?(\d+)"?$/m.exec(yaml)?.[1] ?? '';
}

/** The text with another resourceVersion. */
export function withVersion(yaml: string, version: string): string {
  return yaml.replace(/^ {2}resourceVersion: .*$/m, `  resourceVersion: "${version}"`);
}

function scalar(value: unknown): string {
  return typeof value === 'string' ? (/^[A-Za-z][\w./:-]*$/.test(value) ? value : JSON.stringify(value)) : String(value);
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

/** A small value as YAML, for showing scopes and rules. */
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
    .map(([name, each]) => {
      if (isPlain(each)) return `${indent}${name}: ${scalar(each)}\n`;
      if (Array.isArray(each) && each.every(isPlain)) return `${indent}${name}: [${each.map(scalar).join(', ')}]\n`;
      return `${indent}${name}:\n${toYaml(each, `${indent}  `)}`;
    })
    .join('');
}
