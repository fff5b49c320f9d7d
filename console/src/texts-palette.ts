// The texts about what the palette has searched. The first load does not need them.

export const paletteTexts = {
  list: 'List',
  inList: (list: string, typed: string) => `Search all ${list.toLowerCase()} for “${typed}”`,
  searching: 'Still loading names…',
  best: (count: number) => `Only the best ${count} matches are shown.`,
  byName: (count: number, kinds: string) => `Of these, all names that begin with the text were searched, and the first ${count} by other parts: ${kinds}. Their lists search all.`,
  first: (count: number, kinds: string) => `Searched the first ${count} of each of these: ${kinds}. Their lists search all.`,
  more: (count: number, kinds: string) => `More than ${count} names begin with the text: ${kinds}.`,
  failed: (kinds: string) => `Not searched as a whole, because the server did not answer: ${kinds}.`,
};
