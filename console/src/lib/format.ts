// Numbers and times for people.

const UNITS: [string, number][] = [
  ['y', 31_536_000],
  ['d', 86_400],
  ['h', 3_600],
  ['m', 60],
  ['s', 1],
];

/** A duration with its one or two greatest units, as kubectl prints ages. */
export function duration(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  const index = UNITS.findIndex(([, size]) => whole >= size);
  if (index < 0) return '0s';
  const [unit, size] = UNITS[index] as [string, number];
  const count = Math.floor(whole / size);
  const next = UNITS[index + 1];
  if (count >= 10 || !next || unit === 's') return `${count}${unit}`;
  const rest = Math.floor((whole % size) / next[1]);
  return rest ? `${count}${unit}${rest}${next[0]}` : `${count}${unit}`;
}

/** The seconds of a duration that the server printed, such as `5d3h`; undefined if it is none. */
export function parseDuration(text: string): number | undefined {
  const parts = [...text.matchAll(/(\d+)([ydhms])/g)];
  if (parts.length === 0 || parts.map((part) => part[0]).join('') !== text) return undefined;
  return parts.reduce((sum, [, count, unit]) => sum + Number(count) * (UNITS.find(([name]) => name === unit)?.[1] ?? 0), 0);
}

/** How long ago a time of the API was. */
export function age(time: string | null | undefined, now: number): string {
  const at = time ? Date.parse(time) : Number.NaN;
  return Number.isNaN(at) ? '–' : duration((now - at) / 1000);
}

export function bytes(count: number): string {
  if (count < 1024) return `${count} B`;
  const kib = count / 1024;
  return kib < 1024 ? `${kib.toFixed(kib < 10 ? 1 : 0)} KiB` : `${(kib / 1024).toFixed(1)} MiB`;
}

export function count(value: number): string {
  return value.toLocaleString('en-US');
}

/** A time in the form `2026-03-01 14:05:09` of the browser's time zone. */
export function time(text: string | null | undefined): string {
  const at = text ? new Date(text) : undefined;
  if (!at || Number.isNaN(at.getTime())) return '–';
  const two = (value: number) => String(value).padStart(2, '0');
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

/** Minutes and seconds, such as `1:05`. */
export function countdown(seconds: number): string {
  const whole = Math.max(0, Math.ceil(seconds));
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, '0')}`;
}

/** The bytes of a value in base64. */
export function fromBase64(text: string): Uint8Array {
  return Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
}

/** A value in base64. */
export function toBase64(data: Uint8Array): string {
  let text = '';
  for (let at = 0; at < data.length; at += 0x8000) text += String.fromCharCode(...data.subarray(at, at + 0x8000));
  return btoa(text);
}

/** A word for a shell, quoted if it has to be. */
export function shellWord(text: string): string {
  return /^[A-Za-z0-9_./:=@%+,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** A time in whole hours, such as `24 hours`. */
export const hours = (seconds: number): string => (seconds === 3600 ? '1 hour' : `${seconds / 3600} hours`);
