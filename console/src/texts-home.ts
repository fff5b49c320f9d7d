// The texts of the overview.

const team = (name: string): string => `team ${name}`;

/** An owner as lists name it, `user/NAME` or `team/NAME`, in words. */
function ownerInWords(owner: string): string {
  const [kind, ...rest] = owner.split('/');
  const name = rest.join('/');
  return kind === 'team' ? team(name) : name || owner;
}

export const homeTexts = {
  shared: 'Shared with me',
  notShared: 'No secret is shared with you yet.',
  byRole: 'By a role or a project, you may read secrets that are not shared with you. The lists have all of them.',
  by: (owner: string) => (owner ? `by ${ownerInWords(owner)}` : 'without an owner'),
  to: (subject: string) => (subject === 'user/*' ? 'with everyone' : subject.startsWith('team/') ? `with ${team(subject.slice(5))}` : ''),
  projects: 'My projects',
  noProjects: 'You are not a member of a project.',
  projectsByRole: 'You are not a member of a project. By a role, you may read projects of others.',
  changed: (age: string) => `changed ${age} ago`,
};
