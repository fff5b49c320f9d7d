// A new value of an access key, in the format of the reference: pst_ID_SECRET_CHECKSUM.

const BASE62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const ID = 8;
const SECRET = 43;
const CHECKSUM = 6;

/** The CRC-32 of gzip over ASCII text. */
export function crc32(text: string): number {
  let crc = 0xffffffff;
  for (const char of text) {
    crc ^= char.charCodeAt(0);
    for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1;
  }
  return (crc ^ 0xffffffff) >>> 0;
}

function inBase62(value: number, digits: number): string {
  let text = '';
  for (let rest = value; text.length < digits; rest = Math.floor(rest / 62)) text = (BASE62[rest % 62] ?? '0') + text;
  return text;
}

/** The value with its checksum. */
export function withChecksum(id: string, secret: string): string {
  const head = `pst_${id}_${secret}`;
  return `${head}_${inBase62(crc32(head), CHECKSUM)}`;
}

/** Random characters of base62, all equally likely. */
export function randomText(length: number): string {
  let text = '';
  while (text.length < length) {
    for (const byte of crypto.getRandomValues(new Uint8Array(64))) {
      if (byte < 248 && text.length < length) text += BASE62[byte % 62];
    }
  }
  return text;
}

/** A new value for an access key. */
export function newKeyValue(): string {
  return withChecksum(randomText(ID), randomText(SECRET));
}
