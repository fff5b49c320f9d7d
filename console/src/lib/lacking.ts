// The permissions that a caller would grant without holding them, as the server names them.
import type { PolicyRule } from './types';
import { readYaml } from './yaml-read';

const ATTEMPT = /attempting to grant RBAC permissions not currently held:\n/;

/** The rules in the message of a refused grant; undefined for another message. */
export function lackingRules(message: string): PolicyRule[] | undefined {
  const found = ATTEMPT.exec(message);
  if (!found) return undefined;
  try {
    const rules = readYaml(message.slice(found.index + found[0].length));
    return Array.isArray(rules) ? (rules as PolicyRule[]) : undefined;
  } catch {
    return undefined;
  }
}
