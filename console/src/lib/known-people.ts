// The users and teams that the caller may see, for pickers: those of lists, of the caller's teams, and of a project.
import { GROUP_PATH, TABLE_TYPE, get, withQuery } from './api';
import { TEAMS, USERS, collectionPath, type Kind } from './kinds';
import { rowsOf, type Table } from './row-store';
import { session } from './session.svelte';
import type { ProjectMembers, TeamMembers } from './types';

export interface Person {
  /** `user/NAME` or `team/NAME`. */
  subject: string;
  /** The name that people know; empty if there is none. */
  title: string;
}

export interface KnownPeople {
  people: Person[];
  /** The members by team, for the teams whose members the caller may see. */
  members: Map<string, Person[]>;
  /** Whether there are more users or teams than those that were read. */
  isPartial: boolean;
}

/** The most names that are read of each kind. */
const MOST = 500;
/** The most teams whose members are read. */
const MOST_TEAMS = 20;
/** The most names that are found by what is typed. */
const MOST_FOUND = 20;
/** A user or team, or the beginning of a name. */
const TYPED = /^(?:(user|team)\/)?([a-z0-9][a-z0-9.-]*)$/;

/** What the server does not show to the caller is not known. */
async function orNothing<T>(answer: Promise<T>): Promise<T | undefined> {
  try {
    return await answer;
  } catch {
    return undefined;
  }
}

async function listed(kind: Kind, limit: number, fieldSelector?: string): Promise<{ people: Person[]; isPartial: boolean }> {
  const table = await orNothing(get<Table>(withQuery(collectionPath(kind), { limit, fieldSelector }), { accept: TABLE_TYPE, background: true }));
  const at = table?.columnDefinitions?.findIndex(({ name }) => name === 'Display Name') ?? -1;
  const prefix = kind === USERS ? 'user/' : 'team/';
  const people = table ? rowsOf(table).map((row) => ({ subject: prefix + row.name, title: String(row.cells[at] ?? '') })) : [];
  return { people, isPartial: !!table?.metadata?.continue };
}

/** The users and teams whose names begin with a text: of both, or of those that `user/` or `team/` names. */
export async function findPeople(typed: string): Promise<Person[]> {
  const [, type, name] = TYPED.exec(typed.trim().toLowerCase()) ?? [];
  if (!name) return [];
  const kinds = type === 'user' ? [USERS] : type === 'team' ? [TEAMS] : [USERS, TEAMS];
  const found = await Promise.all(kinds.map((kind) => listed(kind, MOST_FOUND, `metadata.name^=${name}`)));
  return found.flatMap(({ people }) => people);
}

async function membersOf(team: string): Promise<TeamMembers | undefined> {
  return orNothing(get<TeamMembers>(`${GROUP_PATH}/teams/${encodeURIComponent(team)}/members`, { background: true }));
}

const usersOf = (list: TeamMembers | undefined): Person[] => (list?.users ?? []).map(({ name = '', displayName = '' }) => ({ subject: `user/${name}`, title: displayName }));

async function inProject(project: string): Promise<Person[]> {
  if (!project) return [];
  const members = await orNothing(get<ProjectMembers>(`${GROUP_PATH}/projects/${encodeURIComponent(project)}/members`, { background: true }));
  const of = (prefix: string, list: ProjectMembers['users'] = []): Person[] =>
    list.flatMap(({ info }) => (info?.name && info.name !== '*' ? [{ subject: prefix + info.name, title: info.displayName ?? '' }] : []));
  return [...of('user/', members?.users), ...of('team/', members?.teams)];
}

/** Reads the users and teams that the caller may see. The caller is not one of them. */
export async function readKnownPeople(project: string): Promise<KnownPeople> {
  const own = (session.self?.user?.teams ?? []).map((team): Person => ({ subject: `team/${team.name}`, title: team.displayName ?? '' }));
  const [users, teams, ofProject] = await Promise.all([listed(USERS, MOST), listed(TEAMS, MOST), inProject(project)]);
  const names = [...new Set([...own, ...teams.people].map(({ subject }) => subject.slice('team/'.length)))].slice(0, MOST_TEAMS);
  const lists = await Promise.all(names.map(async (team) => ({ team, list: await membersOf(team) })));
  const found = new Map<string, Person>();
  const ofTeams = lists.flatMap(({ list }) => usersOf(list));
  for (const person of [...own, ...ofTeams, ...ofProject, ...users.people, ...teams.people]) {
    // A later one may have a title.
    if (!found.get(person.subject)?.title) found.set(person.subject, person);
  }
  found.delete(`user/${session.self?.user?.name ?? ''}`);
  const members = lists.flatMap(({ team, list }): [string, Person[]][] => (list && !list.truncated ? [[`team/${team}`, usersOf(list)]] : []));
  return { people: [...found.values()], members: new Map(members), isPartial: users.isPartial || teams.isPartial };
}

/** The user or team that a person means by a name: a known one, or else a user. */
export function subjectNamed(typed: string, people: Person[]): string {
  const text = typed.trim();
  if (/^(user|team)\/./.test(text)) return text;
  const isKnown = (subject: string): boolean => people.some((person) => person.subject === subject);
  return !isKnown(`user/${text}`) && isKnown(`team/${text}`) ? `team/${text}` : text && `user/${text}`;
}
