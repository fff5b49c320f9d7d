// The check before a save of an object from which power follows. It is loaded with the first such save.
import { mount, unmount } from 'svelte';
import LastWay from '../components/LastWay.svelte';
import { decide } from './access';
import { MERGE_PATCH, get, send, withQuery } from './api';
import { ACCESS_KEYS, KINDS } from './kinds';
import { askLastWay, mayTakePower, type Change } from './last-way';
import { session } from './session.svelte';
import type { AnyObject, OwnedAccessKey } from './types';
import type { ApiRequest } from './writes';
import { stopTexts as words } from '../texts-stops';

/** Why a save has to be confirmed. */
export interface Doubt {
  name: string;
  /** Why it is not known whether another way in is left; empty if none is. */
  unknown: string;
}

/** Asks the person. Resolves to whether the save goes on. */
export type Ask = (doubt: Doubt) => Promise<boolean>;

const askPerson: Ask = (doubt) =>
  new Promise((resolve) => {
    const dialog = mount(LastWay, {
      target: document.body,
      props: {
        ...doubt,
        onanswer: (isConfirmed: boolean) => {
          void unmount(dialog);
          resolve(isConfirmed);
        },
      },
    });
  });

/** The object as the server would store it, which tells what a patch or a text means. */
async function dryRun({ method, path, body, text, contentType }: ApiRequest): Promise<AnyObject> {
  const options = { body, ...(text === undefined ? {} : { text }), ...(contentType ? { contentType } : {}) };
  return (await (await send(method, withQuery(path, { dryRun: 'All' }), options)).json()) as AnyObject;
}

async function changeOf(request: ApiRequest): Promise<Change | undefined> {
  const [path = ''] = request.path.split('?');
  const kind = KINDS.find((each) => path.split('/').at(-2) === each.plural);
  if (!kind) return undefined;
  if (request.contentType === MERGE_PATCH && !mayTakePower(kind, request.body as AnyObject)) return undefined;
  const before = await get<AnyObject>(path, { background: true });
  return { kind, before, after: await dryRun(request) };
}

/** Whether a save is about a key that has at most the permissions of the caller, who has not every one. */
async function isOfWeakCaller({ kind, before }: Change): Promise<boolean> {
  const { user, accessKeyScope } = session.self ?? {};
  const { user: owner, groups } = (before as OwnedAccessKey).spec ?? {};
  if (kind !== ACCESS_KEYS || !owner || owner !== user?.name || groups?.length || accessKeyScope) return false;
  return !(await decide({ verb: '*', group: '*', resource: '*' })).allowed;
}

/** Checks a save, and asks if it takes the last way in, or may do so. It rejects if the person does not confirm it. */
export async function checkSave(request: ApiRequest, ask: Ask = askPerson): Promise<void> {
  const change = await changeOf(request);
  if (!change) return;
  let unknown = '';
  try {
    const isLast = await askLastWay(change);
    if (isLast === false) return;
    if (isLast === undefined && (await isOfWeakCaller(change))) return;
    if (isLast === undefined) unknown = words.notAllowed;
  } catch (cause) {
    unknown = (cause as Error).message;
  }
  if (!(await ask({ name: change.before.metadata?.name ?? '', unknown }))) throw new Error(words.notConfirmed);
}
