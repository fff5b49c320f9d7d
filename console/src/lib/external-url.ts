// The URL by which other machines reach the server. This page may have another address.
import { get } from './api';

let asked: Promise<string> | undefined;

/** The external URL without a slash at its end, or the origin of this page if the server does not name one. It is asked for once, because requests to /auth/ are limited. */
export function externalUrl(): Promise<string> {
  asked ??= get<{ externalUrl?: string }>('/auth/methods', { background: true }).then(
    (answer) => (answer.externalUrl || location.origin).replace(/\/+$/, ''),
    () => {
      // The next page asks again.
      asked = undefined;
      return location.origin;
    },
  );
  return asked;
}
