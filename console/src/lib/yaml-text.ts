// What the console does with YAML as text. The server reads and writes it.

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
