// Writes that several pages send.
import { GROUP_PATH, MERGE_PATCH, METADATA_TYPE, YAML_TYPE, json, send, withQuery } from './api';
import { forgetDecisions } from './access';
import { collectionPath, objectPath, type Kind } from './kinds';
import type { AnyObject } from './types';

/** A request as data: a page sends it, and shows the command that does the same. */
export interface ApiRequest {
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  path: string;
  body?: unknown;
  /** Text that is sent as it is, such as YAML. */
  text?: string;
  contentType?: string;
}

/** The request that changes fields of an object. */
export function patchOf(kind: Kind, name: string, namespace: string | undefined, body: unknown): ApiRequest {
  return { method: 'PATCH', path: objectPath(kind, name, namespace), body, contentType: MERGE_PATCH };
}

/** The request that creates an object. */
export function createOf(kind: Kind, object: Omit<AnyObject, 'apiVersion' | 'kind'>): ApiRequest {
  const body = { apiVersion: `${kind.group}/v1`, kind: kind.kind, ...object };
  return { method: 'POST', path: collectionPath(kind, object.metadata?.namespace), body };
}

/** The request that asks for a review of the platform's own group. */
export function reviewOf(plural: string, kind: string, spec: unknown): ApiRequest {
  return { method: 'POST', path: `${GROUP_PATH}/${plural}`, body: { apiVersion: 'management.platform.sh/v1', kind, spec } };
}

/** The request that deletes the object with this uid, and no later one of the same name. */
export function removeOf(kind: Kind, name: string, namespace: string | undefined, uid: string | undefined): ApiRequest {
  return { method: 'DELETE', path: objectPath(kind, name, namespace), body: { preconditions: uid ? { uid } : undefined } };
}

/** `asked`: the page has asked already what a way in needs to be asked. */
export type Confirmation = 'ask' | 'asked';

/** What a write returns, and whether it is one. */
interface Sending {
  accept: string;
  dryRun: boolean;
  confirmation: Confirmation;
}

/** Sends a write to an object: every save goes through here. One that takes the last way in has to be confirmed. */
async function write(request: ApiRequest, { accept, dryRun, confirmation }: Sending): Promise<Response> {
  const { method, path, body, text, contentType } = request;
  const isSave = method === 'PATCH' || method === 'PUT';
  // Only few saves need the check, so that it is not in the first load.
  if (isSave && !dryRun && confirmation === 'ask' && MAY_TAKE_WAYS.test(path)) await (await import('./save-check')).checkSave(request);
  const options = { body, background: dryRun && method !== 'PUT', ...(text === undefined ? {} : { text }), ...(contentType ? { contentType } : {}) };
  const response = await send(method, withQuery(path, { dryRun: dryRun ? 'All' : undefined }), { ...options, ...(method === 'DELETE' ? {} : { accept }) });
  if (!dryRun) forgetDecisions();
  return response;
}

/** The objects whose saves can take a way in. */
const MAY_TAKE_WAYS = /\/(ownedaccesskeys|users|teams|connectors|workloadidentities)\/[^/?]+(\?|$)/;

/** Sends a write. The answer has metadata alone, so that it brings no values back. */
export async function perform(request: ApiRequest, dryRun = false, confirmation: Confirmation = 'ask'): Promise<void> {
  await write(request, { accept: METADATA_TYPE, dryRun, confirmation });
}

/** Changes fields of an object. */
export async function patch(kind: Kind, name: string, namespace: string | undefined, body: unknown, dryRun = false): Promise<void> {
  await perform(patchOf(kind, name, namespace, body), dryRun);
}

/** Replaces an object by YAML, and returns the YAML of the result. */
export async function replace(path: string, text: string, dryRun: boolean): Promise<string> {
  const request: ApiRequest = { method: 'PUT', path: withQuery(path, { fieldValidation: 'Strict' }), text, contentType: YAML_TYPE };
  return (await write(request, { accept: YAML_TYPE, dryRun, confirmation: 'ask' })).text();
}

/** Creates an object, and returns it. */
export async function create<T extends AnyObject>(kind: Kind, object: Omit<T, 'apiVersion' | 'kind'>, accept?: string): Promise<T> {
  const { path, body } = createOf(kind, object as AnyObject);
  const created = await json<T>('POST', path, { body, ...(accept ? { accept } : {}) });
  forgetDecisions();
  return created;
}

/** Deletes the object with this uid, and no later one of the same name. */
export async function remove(kind: Kind, name: string, namespace: string | undefined, uid: string | undefined): Promise<void> {
  await perform(removeOf(kind, name, namespace, uid), false, 'asked');
}

/** Moves a virtual cluster to a project, or checks whether that would work. */
export async function migrate(name: string, namespace: string, target: string, dryRun: boolean): Promise<void> {
  const path = `${GROUP_PATH}/projects/${encodeURIComponent(target)}/migratevirtualclusterinstance`;
  const body = {
    apiVersion: 'management.platform.sh/v1',
    kind: 'ProjectMigrateVirtualClusterInstance',
    sourceVirtualClusterInstance: { name, namespace },
  };
  await send('POST', withQuery(path, { dryRun: dryRun ? 'All' : undefined }), { body });
  if (!dryRun) forgetDecisions();
}

export interface Progress {
  done: number;
  refused: { name: string; why: string }[];
}

/**
 * Sends one request for each item, one after the other, and reports after each. A refused one does not stop the others;
 * `isStopped` does.
 */
export async function forEach<T>(
  items: T[],
  nameOf: (item: T) => string,
  work: (item: T) => Promise<void>,
  report: (progress: Progress) => void,
  isStopped: () => boolean,
): Promise<Progress> {
  let progress: Progress = { done: 0, refused: [] };
  for (const item of items) {
    if (isStopped()) break;
    try {
      await work(item);
      progress = { ...progress, done: progress.done + 1 };
    } catch (cause) {
      progress = { ...progress, refused: [...progress.refused, { name: nameOf(item), why: (cause as Error).message }] };
    }
    report(progress);
  }
  return progress;
}
