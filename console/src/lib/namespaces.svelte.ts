// The namespaces that the caller may choose from, and the chosen one.
import { METADATA_LIST_TYPE, get, withQuery } from './api';
import { failureOf } from './failure';
import { PROJECTS, collectionPath } from './kinds';
import { projectPrefix } from './project-namespace';
import { isTemporary, waitFor } from './retry';
import { router } from './router.svelte';
import { session } from './session.svelte';
import type { ObjectMeta } from './types';

export interface Place {
  namespace: string;
  /** The project of the namespace, if it has one. */
  project: string;
}

/** The projects whose names are read. */
export const MOST_PROJECTS = 500;

class Namespaces {
  projects: string[] = $state.raw([]);
  /** Whether there are more projects than those that are known. */
  isPartial = $state(false);

  /** The namespace in the URL; empty for all. */
  get chosen(): string {
    return router.param('ns');
  }

  get prefix(): string {
    return projectPrefix();
  }

  get shared(): string {
    return session.self?.defaultNamespace ?? 'platform';
  }

  /** The namespace for a new shared secret: the default one, or else the first one in which the caller may create some. */
  get forSecrets(): string {
    const first = session.self?.secretNamespaces?.[0] ?? '*';
    return first === '*' ? this.shared : first;
  }

  get places(): Place[] {
    const own = [...new Set([this.shared, this.forSecrets])].map((namespace) => ({ namespace, project: '' }));
    return [...own.filter(({ namespace }) => !this.projectOf(namespace)), ...this.projects.map((project) => ({ namespace: this.prefix + project, project }))];
  }

  projectOf(namespace: string): string {
    return this.projects.find((project) => this.prefix + project === namespace) ?? '';
  }

  /** Reads the projects, and tries again while the server is away. */
  async start(signal: AbortSignal): Promise<void> {
    for (let attempt = 0; !signal.aborted; attempt++) {
      try {
        return await this.load();
      } catch (cause) {
        if (!isTemporary(failureOf(cause))) return;
      }
      await waitFor(attempt, signal);
    }
  }

  async load(): Promise<void> {
    const path = withQuery(collectionPath(PROJECTS), { limit: MOST_PROJECTS });
    const list = await get<{ metadata?: { continue?: string }; items?: { metadata?: ObjectMeta }[] }>(path, {
      accept: METADATA_LIST_TYPE,
      background: true,
    });
    this.isPartial = !!list.metadata?.continue;
    this.projects = (list.items ?? []).flatMap((item) => (item.metadata?.name ? [item.metadata.name] : []));
  }
}

export const namespaces = new Namespaces();
