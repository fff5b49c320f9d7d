// The texts about sharing: access rules, who has them, and what changes. The first load does not need them.

const all = (list: string[]): string => (list.length > 1 ? `${list.slice(0, -1).join(', ')} and ${list.at(-1)}` : (list[0] ?? ''));

const PARTS: Record<string, string> = { read: 'read', change: 'change', delete: 'delete', use: 'use', all: 'do everything' };

export const shareTexts = {
  button: 'Share',
  title: (name: string) => `Share ${name}`,
  with: 'With',
  withHint: 'The names that you may see are suggested. A team is written as team/NAME.',
  level: 'Permission',
  levelOf: (name: string) => `Permission of ${name}`,
  levels: {
    read: 'Can read',
    change: 'Can read and change',
    use: 'Can read and use',
    all: 'Can do everything',
    custom: 'Chosen verbs',
  } as Record<string, string>,
  verbs: 'Verbs',
  verbsOf: (name: string) => `Verbs of ${name}`,
  current: 'Has access by a rule',
  noShares: 'Shared with no one. The owner, and roles in the server, give access.',
  owner: 'Owner',
  ownerHas: 'can do everything',
  byRule: (name: string) => `rule ${name}`,
  byField: (field: string) => `by the field ${field}, which only the YAML changes`,
  subresources: (names: string[], isAlone = false) => `${isAlone ? '' : 'also '}on ${names.includes('*') ? 'every subresource' : all(names)}`,
  takeBack: (name: string) => `Take back from ${name}`,
  everyone: 'every user',
  team: (name: string) => `team ${name}`,
  effect: 'What changes',
  noEffect: 'Nothing changes yet.',
  gains: 'can',
  loses: 'can no longer',
  /** What verbs permit, after “can”. */
  meaning: (parts: string[], others: string[]) =>
    all([...parts.map((part) => PARTS[part] ?? part), ...(others.length > 3 ? ['use other verbs'] : others.map((verb) => `use the verb ${verb}`))]),
  keeps: (meaning: string) => `keeps by another way: ${meaning}`,
  mayKeep: (teams: string[]) => `may keep it as a member of ${all(teams)}`,
  uncertain: 'A role or a team that you may not see can still allow it.',
  has: (meaning: string) => `has already by another way: ${meaning}`,
  members: (names: string[], most = 6) => `${names.length === 1 ? '1 member' : `${names.length} members`}${names.length > 0 && names.length <= most ? `: ${names.join(', ')}` : ''}`,
  saved: (name: string) => `The access to ${name} was saved.`,
  refused: 'Not shared',
  refusals: {
    unnamed: (whom: string) =>
      `You cannot share with the ${whom}: you have no team in common, or the name does not exist. You can share with your teams and their members, and in a project with its members. An administrator can share with anyone.`,
    everyone: () => 'You cannot share with every user. An administrator can.',
    'not-held': (verb: string) => `You can give only what you may do yourself, and you do not have ${verb === '*' ? 'every permission' : `the verb ${verb}`}.`,
    changed: () => 'Another writer changed the object meanwhile. The rows show its rules as they are now. Look at the changes again, and save.',
    'unknown-name': (name: string) => `There is no user or team ${name}.`,
  } as Record<string, (what: string) => string>,
  /** How the caller may read the object. */
  own: {
    label: 'You can read it',
    owner: 'as the owner',
    ownerTeam: (team: string) => `as a member of team ${team}, the owner`,
    rule: (rule: string, team: string, isEveryone: boolean) => `by the rule ${rule}${team ? `, as a member of team ${team}` : isEveryone ? ', which is for every user' : ''}`,
    member: 'as a member of the project',
    role: 'by a role',
  },
};
