// The claims of an endpoint token. They are shown, and not verified.
import { fromBase64 } from './format';

export interface Claims {
  sub: string;
  aud: string[];
  exp: number;
  jti: string;
  groups: string[];
}

/** The claims; undefined for a text that is no token. */
export function claimsOf(token: string): Claims | undefined {
  try {
    const part = (token.split('.')[1] ?? '').replaceAll('-', '+').replaceAll('_', '/');
    const claims = JSON.parse(new TextDecoder().decode(fromBase64(part))) as Partial<Claims> & { aud?: string | string[] };
    const { sub = '', aud = [], exp = 0, jti = '', groups = [] } = claims;
    return { sub, aud: Array.isArray(aud) ? aud : [aud], exp, jti, groups };
  } catch {
    return undefined;
  }
}
