// The texts about what stops when objects are disabled or deleted. The first load does not need them.

const many = (count: number, one: string): string => `${count} ${one}${count === 1 ? '' : 's'}`;

export const stopTexts = {
  asking: 'Counting what stops…',
  unknown: 'What stops is not known:',
  stops: ({ keys, sessions, invitations, isAtLeast }: { keys: number; sessions: number; invitations: number; isAtLeast: boolean }, isKey: boolean) => {
    const counted = [many(keys, isKey ? 'other access key' : 'access key'), many(sessions, 'session'), ...(invitations > 0 ? [many(invitations, 'invitation')] : [])];
    return `${isAtLeast ? 'At least ' : ''}${counted.slice(0, -1).join(', ')} and ${counted.at(-1)} stop at once.`;
  },
  owned: (objects: number, isAtLeast: boolean) =>
    objects === 0 && isAtLeast ? 'How many objects lose their owner is not known: you may not list all of them.' : `${isAtLeast ? 'At least ' : ''}${objects === 1 ? '1 object loses its owner' : `${objects} objects lose their owner`}.`,
  moveFirst: 'To give what a user owns to a team first, offboard the user on the command line:',
  ownSession: 'Your own session is one of them: this page logs you out.',
  lastWay: 'This is the last way in: no other unlimited access key with every permission is left that is valid for a day or longer, and no administrator can log in with single sign-on.',
  maybeLastWay: 'This may be your last way in. Check that you have another one.',
  saveTitle: (name: string) => `Save ${name}`,
  saveLast: 'This takes the last way in: after it, no unlimited access key with every permission is left that is valid for a day or longer, and no administrator can log in with single sign-on.',
  saveUnknown: (why: string) => `This takes access away, and it could not be checked whether another way in for administrators is left: ${why}`,
  notAllowed: 'you may not see who has every permission.',
  notConfirmed: 'Nothing was saved, because it was not confirmed.',
  otherWay: 'I have another way in',
  disableTitle: (kind: string) => `Disable ${kind.toLowerCase()}`,
  disableText: 'This disables',
  /** What is typed before several objects are deleted. */
  many: (count: number) => `delete ${count}`,
  /** What is typed before several sessions end. */
  sessions: (count: number) => `end ${count}`,
};
