// The users and teams that a field suggests: the first ones, and those that were found by what is typed.
import { findPeople } from './known-people';
import { TEAMS, USERS } from './kinds';
import { MOST, namesOf } from './people.svelte';
import { partsOf } from './shares';

/** The most names that a field suggests at once. */
const SUGGESTED = 50;

/** The names that a field suggests for a text: those that have it in themselves or in their titles. */
export function fitting(names: string[], typed: string, titles: Map<string, string>): string[] {
  const wanted = typed.trim().toLowerCase();
  return names.filter((name) => `${name} ${titles.get(name) ?? ''}`.toLowerCase().includes(wanted)).slice(0, SUGGESTED);
}

const joined = (known: string[], found: string[]): string[] => [...new Set([...known, ...found])];

class People {
  users: string[] = $state.raw([]);
  teams: string[] = $state.raw([]);

  /** Whether there may be more than those that are known. */
  get isPartial(): boolean {
    return this.users.length >= MOST || this.teams.length >= MOST;
  }

  /** As `user/NAME` and `team/NAME`. */
  get subjects(): string[] {
    return [...this.users.map((user) => `user/${user}`), ...this.teams.map((team) => `team/${team}`)];
  }

  async load(): Promise<void> {
    [this.users, this.teams] = await Promise.all([namesOf(USERS), namesOf(TEAMS)]);
  }

  /** Adds those whose names begin with a text, if the first ones may not be all. */
  async find(typed: string): Promise<void> {
    if (!this.isPartial) return;
    const found = (await findPeople(typed)).map(({ subject }) => partsOf(subject));
    const named = (wanted: 'user' | 'team'): string[] => found.filter(({ kind }) => kind === wanted).map(({ name }) => name);
    [this.users, this.teams] = [joined(this.users, named('user')), joined(this.teams, named('team'))];
  }
}

export const people = new People();
