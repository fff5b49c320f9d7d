// The session: login, logout, and the end by idleness.
import { forgetDecisions } from './access';
import { GROUP_PATH, noteSession, observe, review, send, type RequestOptions } from './api';
import type { ConsoleSession, Self } from './types';
import { failureOf, type Failure } from './failure';
import { noteProjectPrefix } from './project-namespace';
import { toasts } from './toasts.svelte';
import { texts } from '../texts';

type Message = { type: 'used'; endsAt: number } | { type: 'login' } | { type: 'logout'; session: string };

/** The warning begins this many seconds before the end. */
const WARNING = 120;
/** Input counts as use of the session at most once in this time. */
const TOUCH_EVERY = 5 * 60_000;
/** The server is asked for the end of the session at most once in this time. */
const ASK_EVERY = 10_000;

class Session {
  /**
   * `asking`: a login link was opened, and the user has not confirmed the login yet. `refused`: the server does not know
   * the code of the link.
   */
  phase: 'loading' | 'out' | 'in' | 'unreachable' | 'asking' | 'refused' = $state('loading');
  info: ConsoleSession['status'] | undefined = $state.raw(undefined);
  self: NonNullable<Self['status']> | undefined = $state.raw(undefined);
  /** Why there is no session: one sentence. */
  endReason = $state('');
  /** Why the session could not be read at the start. */
  problem: Failure | undefined = $state.raw(undefined);
  /** Seconds until the session ends by idleness, while the warning is shown. */
  secondsLeft: number | undefined = $state(undefined);

  /** The user of the login link. */
  linkUser = $state('');

  #idleEnd = 0;
  #lastUse = 0;
  /** How much the server's clock is ahead, in milliseconds. */
  #skew = 0;
  #askedAt = 0;
  #code = '';
  readonly #channel = new BroadcastChannel('postern-session');

  get userName(): string {
    return this.info?.userName ?? '';
  }

  /** The caller and their teams, as lists name owners: `user/NAME`, `team/NAME`. */
  get owners(): string[] {
    const { user, team } = this.self ?? {};
    const teams = [...(team?.name ? [team] : []), ...(user?.teams ?? [])].map((each) => `team/${each.name}`);
    return user?.name ? [`user/${user.name}`, ...teams] : teams;
  }

  /** Whether the caller has groups of a provider. They begin with the name of the connector. */
  get hasProviderGroups(): boolean {
    return !!this.self?.groups?.some((group) => /^(?!system:|platform:).+:/.test(group));
  }

  /** Begins with a login link, with the cookie of an earlier login, or with the login page. */
  async start(): Promise<void> {
    observe(
      (background) => !background && this.#used(),
      (message) => this.#ended(message),
    );
    this.#channel.addEventListener('message', ({ data }: MessageEvent<Message>) => this.#hear(data));
    for (const name of ['pointerdown', 'keydown'] as const) addEventListener(name, () => this.#touched(), { passive: true });
    setInterval(() => void this.#tick(), 1000);
    const code = takeCode();
    if (!code) return this.#resume();
    await this.#askAboutLink(code);
  }

  /** Asks before a login link is used: another person may have sent it, to see what is done in their session. */
  async #askAboutLink(code: string): Promise<void> {
    try {
      const { status } = await this.#call('GET', { bearer: code, background: true });
      this.linkUser = status.userName;
    } catch (cause) {
      await this.#failLink(cause);
      return;
    }
    this.#code = code;
    try {
      this.info = (await this.#call('GET', { background: true })).status;
    } catch {
      // The browser has no session.
    }
    this.phase = 'asking';
  }

  /** Begins a session with an access key, which is not kept. */
  async loginWithKey(key: string): Promise<void> {
    await this.#enter(await this.#call('POST', { bearer: key }));
  }

  /** Ends the session, also at the provider. The page stays if that fails: it must not look logged out while the cookie still works. */
  async logout(): Promise<void> {
    // A new login may begin, here or in another tab, before the server has answered.
    const ended = this.info?.accessKey ?? '';
    let atProvider;
    try {
      atProvider = await this.#endSession();
    } catch (cause) {
      if (this.phase === 'in') toasts.fail(texts.login.notLoggedOut, (cause as Error).message);
      return;
    }
    this.#channel.postMessage({ type: 'logout', session: ended } satisfies Message);
    if (!this.info || this.info.accessKey === ended) this.#leave('');
    if (atProvider?.startsWith('https:')) location.assign(atProvider);
  }

  /** Returns where the session at the provider ends. */
  async #endSession(): Promise<string | null | undefined> {
    try {
      return (await send('DELETE', '/auth/session')).headers.get('X-Postern-Provider-Logout');
    } catch (cause) {
      const { code } = failureOf(cause);
      if (code === 401) return undefined;
      // Logins of this address may be limited now. The session is a key, which can be deleted as every key.
      if (code !== 429 || !this.info) throw cause;
      await send('DELETE', `${GROUP_PATH}/ownedaccesskeys/${encodeURIComponent(this.info.accessKey)}`);
      return undefined;
    }
  }

  /** Counts as use of the session. */
  async stay(): Promise<void> {
    const { status } = await this.#call('GET');
    this.#apply(status);
    this.secondsLeft = undefined;
  }

  async #resume(): Promise<void> {
    try {
      await this.#enter(await this.#call('GET'));
    } catch (cause) {
      const failure = failureOf(cause);
      // Only a 401 says that there is no session. After anything else the session may still be there.
      if (failure.code === 401) {
        this.phase = 'out';
      } else {
        this.problem = failure;
        this.phase = 'unreachable';
      }
    }
  }

  /** Uses the login link, in place of a session that the browser may have, or not. */
  async answer(use: boolean): Promise<void> {
    const code = this.#code;
    this.#code = '';
    this.phase = 'loading';
    if (use) await this.#redeem(code);
    else await this.#resume();
  }

  /** Tries again after the server could not be reached. */
  async retry(): Promise<void> {
    await this.#resume();
  }

  async #redeem(code: string): Promise<void> {
    try {
      await this.#enter(await this.#call('POST', { bearer: code }));
    } catch (cause) {
      await this.#failLink(cause);
    }
  }

  async #failLink(cause: unknown): Promise<void> {
    // The browser may have a session from before.
    await this.#resume();
    const { code, message } = failureOf(cause);
    // The message of a 401 is about access keys, and the person has only seen a link.
    const why = code === 401 ? texts.login.codeGone : texts.login.codeFailed(message);
    if (this.phase === 'in') toasts.fail(why);
    else this.endReason = why;
    if (this.phase === 'out' && code === 401) this.phase = 'refused';
  }

  /** Shows the login after a link that was refused. */
  toLogin(): void {
    this.endReason = '';
    this.phase = 'out';
  }

  async #enter({ status }: ConsoleSession): Promise<void> {
    noteSession();
    // Another user may do other things.
    forgetDecisions();
    const self = await review<Self>('selves', 'Self', {}, { background: true });
    this.self = self.status;
    noteProjectPrefix(self.status?.projectNamespacePrefix);
    this.#apply(status);
    this.endReason = '';
    this.phase = 'in';
    // After a login through a provider, this page is loaded anew, and other tabs may still show the login.
    this.#channel.postMessage({ type: 'login' } satisfies Message);
  }

  #apply(status: ConsoleSession['status']): void {
    this.info = status;
    this.#lastUse = Date.now();
    this.#idleEnd = Date.parse(status.endsAt) - this.#skew;
  }

  #used(): void {
    if (!this.info) return;
    this.#lastUse = Date.now();
    const end = Math.min(this.#lastUse + this.info.idleSeconds * 1000, Date.parse(this.info.expiresAt) - this.#skew);
    if (end <= this.#idleEnd) return;
    this.#idleEnd = end;
    this.secondsLeft = undefined;
    this.#channel.postMessage({ type: 'used', endsAt: end } satisfies Message);
  }

  /** Typing in a form is use, although it sends no request. */
  #touched(): void {
    if (this.phase !== 'in' || this.secondsLeft !== undefined || Date.now() - this.#lastUse < TOUCH_EVERY) return;
    this.#lastUse = Date.now();
    void this.stay().catch(() => {});
  }

  async #tick(): Promise<void> {
    if (this.phase !== 'in') return;
    const left = (this.#idleEnd - Date.now()) / 1000;
    if (left > WARNING) {
      this.secondsLeft = undefined;
      return;
    }
    if (this.secondsLeft === undefined || left <= 0) await this.#ask();
    if (this.phase === 'in') this.secondsLeft = Math.max(0, (this.#idleEnd - Date.now()) / 1000);
    if ((this.secondsLeft ?? 0) > WARNING) this.secondsLeft = undefined;
  }

  /** Asks the server for the end of the session: another tab may have moved it, and its clock decides. */
  async #ask(): Promise<void> {
    if (Date.now() - this.#askedAt < ASK_EVERY) return;
    this.#askedAt = Date.now();
    try {
      const { status } = await this.#call('GET', { background: true });
      this.#idleEnd = Date.parse(status.endsAt) - this.#skew;
    } catch {
      // A 401 has ended the session already; anything else is tried again.
    }
  }

  async #call(method: string, options: RequestOptions = {}): Promise<ConsoleSession> {
    const response = await send(method, '/auth/session', options);
    const date = Date.parse(response.headers.get('Date') ?? '');
    // The header has whole seconds: a smaller difference says nothing.
    this.#skew = Math.abs(date - Date.now()) > 2000 ? date - Date.now() : 0;
    return (await response.json()) as ConsoleSession;
  }

  #hear(message: Message): void {
    if (message.type === 'used') {
      this.#idleEnd = Math.max(this.#idleEnd, message.endsAt);
      this.#lastUse = Date.now();
      this.secondsLeft = undefined;
    } else if (message.type === 'logout') {
      if (this.phase === 'in' && this.info?.accessKey === message.session) this.#leave(texts.login.loggedOutElsewhere);
    } else if (this.phase === 'out' || this.phase === 'refused') {
      void this.#resume();
    }
  }

  #ended(message: string): void {
    if (this.phase === 'in') this.#leave(message);
  }

  /** Shows the login in place of the page. The URL stays, so the next login comes back to it. */
  #leave(reason: string): void {
    this.info = undefined;
    this.self = undefined;
    this.secondsLeft = undefined;
    this.endReason = reason && texts.login.ended(reason);
    this.phase = 'out';
  }
}

/** The code of a login link. It leaves the address bar and the history at once. */
function takeCode(): string {
  const { hash, pathname, search } = location;
  const code = new URLSearchParams(hash.slice(1)).get('code') ?? '';
  if (code) history.replaceState(null, '', pathname + search);
  return code;
}

export const session = new Session();
