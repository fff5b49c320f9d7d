// What is not known about roles, in words.
import { MOST, type Roles } from './roles';
import { roleTexts as words } from '../texts-roles';

/** Which roles and bindings are not known, as sentences. */
export function gapsOf({ denied, partial }: Roles): string[] {
  const named = (plurals: string[]): string[] => plurals.map((plural) => words.kinds[plural] ?? plural);
  return [...(denied.length > 0 ? [words.denied(named(denied))] : []), ...(partial.length > 0 ? [words.partial(named(partial), MOST)] : [])];
}
