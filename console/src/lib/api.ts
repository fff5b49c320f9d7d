// Requests to the server. The session cookie authenticates them; the console never holds a key.
import { UNREACHABLE } from './retry';
import type { Status, StatusCause } from './types';

/** The base path of the management API. */
export const MANAGEMENT = '/kubernetes/management';
/** The base path of the platform's own group. */
export const GROUP_PATH = `${MANAGEMENT}/apis/management.platform.sh/v1`;

export const JSON_TYPE = 'application/json';
export const YAML_TYPE = 'application/yaml';
export const TABLE_TYPE = 'application/json;as=Table;v=v1;g=meta.k8s.io';
export const METADATA_TYPE = 'application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io';
export const METADATA_LIST_TYPE = METADATA_TYPE.replace('PartialObjectMetadata', 'PartialObjectMetadataList');
export const MERGE_PATCH = 'application/merge-patch+json';

/** A response that is no success, or a request without a response. */
export class ApiError extends Error {
  /** The HTTP status; 0 if no response arrived. */
  readonly code: number;
  readonly reason: string;
  readonly causes: StatusCause[];
  readonly auditId: string;
  /** Seconds until the request may be repeated, if the server says so. */
  readonly retryAfter: number | undefined;

  constructor(code: number, message: string, more: Partial<Pick<ApiError, 'reason' | 'causes' | 'auditId' | 'retryAfter'>> = {}) {
    super(message);
    this.code = code;
    this.reason = more.reason ?? '';
    this.causes = more.causes ?? [];
    this.auditId = more.auditId ?? '';
    this.retryAfter = more.retryAfter;
  }
}

export interface RequestOptions {
  body?: unknown;
  /** Text that is sent as it is, such as YAML. */
  text?: string;
  contentType?: string;
  accept?: string;
  /** A request that the console repeats by itself is no use of the session. */
  background?: boolean;
  bearer?: string;
  signal?: AbortSignal | undefined;
}

type Observer = (background: boolean) => void;
type UnauthorizedHandler = (message: string) => void;

let onUse: Observer = () => {};
let onUnauthorized: UnauthorizedHandler = () => {};

/** Registers the functions that hear of used sessions and of rejected ones. */
export function observe(used: Observer, unauthorized: UnauthorizedHandler): void {
  onUse = used;
  onUnauthorized = unauthorized;
}

/** The number of sessions that have begun in this tab. A rejection of an earlier session does not end a later one. */
let sessions = 0;

/** Notes that a session has begun. */
export function noteSession(): void {
  sessions += 1;
}

/** Tells the session that the server no longer accepts it. */
export function reportUnauthorized(message: string): void {
  onUnauthorized(message);
}

function headersOf(options: RequestOptions): Record<string, string> {
  const headers: Record<string, string> = {
    'X-Postern-Console': '1',
    Accept: options.accept ?? JSON_TYPE,
  };
  if (options.background) headers['X-Postern-Background'] = '1';
  if (options.bearer) headers.Authorization = `Bearer ${options.bearer}`;
  if (options.body !== undefined || options.text !== undefined) {
    headers['Content-Type'] = options.contentType ?? JSON_TYPE;
  }
  return headers;
}

/** Makes the error of a response that is no success. */
export async function errorOf(response: Response): Promise<ApiError> {
  let status: Status = {};
  try {
    // A request for YAML gets its errors in YAML, too.
    const isYaml = response.headers.get('Content-Type')?.startsWith(YAML_TYPE);
    status = isYaml ? (await import('./yaml-text')).statusIn(await response.text()) : ((await response.json()) as Status);
  } catch {
    // A proxy in between may answer without a Status.
  }
  const retry = Number(response.headers.get('Retry-After') ?? Number.NaN);
  return new ApiError(response.status, status.message || `${response.status} ${response.statusText}`.trim(), {
    reason: status.reason ?? '',
    causes: status.details?.causes ?? [],
    auditId: response.headers.get('Audit-Id') ?? '',
    retryAfter: Number.isFinite(retry) ? retry : undefined,
  });
}

/** Sends a request, and returns the response if it is a success. */
export async function send(method: string, path: string, options: RequestOptions = {}): Promise<Response> {
  const session = sessions;
  let response: Response;
  try {
    response = await fetch(path, {
      method,
      headers: headersOf(options),
      body: options.text ?? (options.body === undefined ? null : JSON.stringify(options.body)),
      signal: options.signal ?? null,
      credentials: 'same-origin',
      cache: 'no-store',
      redirect: 'error',
    });
  } catch (cause) {
    if ((cause as Error).name === 'AbortError') throw cause;
    throw new ApiError(0, 'the server cannot be reached', { reason: UNREACHABLE });
  }
  if (response.ok) {
    onUse(options.background ?? false);
    return response;
  }
  const error = await errorOf(response);
  if (error.code === 401 && !options.bearer && session === sessions) onUnauthorized(error.message);
  throw error;
}

/** Sends a request with JSON, and returns the JSON of the response. */
export async function json<T>(method: string, path: string, options: RequestOptions = {}): Promise<T> {
  const response = await send(method, path, options);
  return (await response.json()) as T;
}

export const get = <T>(path: string, options?: RequestOptions): Promise<T> => json<T>('GET', path, options);

/** Creates an object of the platform's own group that has no name, such as a review. */
export function review<T>(plural: string, kind: string, spec: unknown, options: RequestOptions = {}): Promise<T> {
  const body = { apiVersion: 'management.platform.sh/v1', kind, spec };
  return json<T>('POST', `${GROUP_PATH}/${plural}`, { ...options, body });
}

/** Adds query parameters that have a value. */
export function withQuery(path: string, query: Record<string, string | number | boolean | undefined>): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== '') params.set(name, String(value));
  }
  const text = params.toString();
  return text ? `${path}${path.includes('?') ? '&' : '?'}${text}` : path;
}
