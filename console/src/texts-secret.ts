// The texts about the readers of a secret and the age of its values. The first load does not need them.

export const secretTexts = {
  readers: {
    title: 'Readers',
    none: 'The values were sent to no one.',
    who: 'Who',
    by: 'By',
    first: 'First',
    last: 'Last',
    count: 'Times',
    via: { Request: 'key', Sync: 'copied to' },
    impersonatedBy: (name: string) => `impersonated by ${name}`,
    since: (time: string) => `Counted since ${time}.`,
    truncated: 'Only the latest 50 readers are kept.',
    noLog: 'This is no audit log. The audit log of the server has each read: see “Search the audit log” in the documentation.',
  },
  /** The age of a value that may be greater. */
  age: (age: string) => `at least ${age} old`,
};
