// Questions about permissions: what is wrong with one, and the command that asks the same.
import { shellWord } from './format';
import type { Kind } from './kinds';

export interface Question {
  /** `user/NAME`, `team/NAME` or `key/NAME`; empty for the caller. */
  who: string;
  verb: string;
  kind: Kind;
  /** Empty for all namespaces. */
  namespace: string;
  /** Empty for all objects. */
  name: string;
}

export type Problem = 'plain-name' | 'no-namespace';

const FLAGS: Record<string, string> = { user: '--as', team: '--as-team', key: '--with-key' };

/** Whom a question is about: the type and the name. */
export function subjectOf(who: string): { type: string; name: string } {
  const [type = '', ...rest] = who.split('/');
  return { type, name: rest.join('/') };
}

/** What keeps a question from having one meaning. */
export function problemOf({ who, kind, namespace, name }: Question): Problem | undefined {
  const subject = subjectOf(who);
  if (who && (!(subject.type in FLAGS) || !subject.name)) return 'plain-name';
  // An object is in one namespace. Without it, the question would be about all objects of that name, and its owner would be denied.
  return kind.namespaced && name && !namespace ? 'no-namespace' : undefined;
}

/** The same question on the command line. There, no flag means the default namespace. */
export function commandOf({ who, verb, kind, namespace, name }: Question): string {
  const { type, name: subject } = subjectOf(who);
  const place = !kind.namespaced ? [] : namespace ? ['-n', shellWord(namespace)] : ['-A'];
  const flag = FLAGS[type];
  const about = flag && subject ? [flag, shellWord(subject)] : [];
  return ['postern can-i', verb, shellWord(name ? `${kind.plural}/${name}` : kind.plural), ...place, ...about, '--why'].join(' ');
}
