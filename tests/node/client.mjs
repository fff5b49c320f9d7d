// The client for Node.js as a controller uses it: an informer, and creates, applies, patches and deletes.
//
// Usage: node client.mjs MODULE KUBECONFIG
// It prints one line of JSON for each event of the informer, and one for the result of each line of its input. The
// value of an object is its display name.

import { createInterface } from 'node:readline';

const [module, kubeconfig] = process.argv.slice(2);
const k8s = await import(module);

const config = new k8s.KubeConfig();
config.loadFromFile(kubeconfig);
const custom = config.makeApiClient(k8s.CustomObjectsApi);
const objects = k8s.KubernetesObjectApi.makeApiClient(config);
const [group, version, namespace, plural] = ['management.platform.sh', 'v1', 'platform', 'sharedsecrets'];
const where = { group, version, namespace, plural };
const { PatchStrategy } = k8s;

const tell = (line) => console.log(JSON.stringify(line));

function follow() {
  const path = `/apis/${group}/${version}/namespaces/${namespace}/${plural}`;
  const informer = k8s.makeInformer(config, path, () => custom.listNamespacedCustomObject(where));
  for (const event of ['add', 'update', 'delete']) {
    informer.on(event, ({ metadata, spec }) =>
      tell({ event, name: metadata.name, value: spec.displayName }),
    );
  }
  // As the client's own examples do it: after an error, it starts again.
  informer.on('error', () => setTimeout(() => informer.start(), 200));
  return informer.start();
}

const secret = (name, value) => ({
  apiVersion: `${group}/${version}`,
  kind: 'SharedSecret',
  metadata: { name, namespace },
  spec: { displayName: value },
});

const patch = ({ name, value, manager = 'node', force }, strategy) =>
  objects.patch(secret(name, value), undefined, undefined, manager, force, strategy);

const commands = {
  create: ({ name, value }) => objects.create(secret(name, value), undefined, undefined, 'node'),
  list: async () => {
    const { items } = await custom.listNamespacedCustomObject(where);
    return items.map(({ metadata }) => metadata.name);
  },
  read: ({ name }) => objects.read(secret(name)),
  apply: (asked) => patch(asked, PatchStrategy.ServerSideApply),
  merge: (asked) => patch(asked, PatchStrategy.MergePatch),
  strategic: (asked) => patch(asked, PatchStrategy.StrategicMergePatch),
  json: ({ name, value }) => {
    const body = [{ op: 'replace', path: '/spec/displayName', value }];
    return custom.patchNamespacedCustomObject({ ...where, name, body });
  },
  delete: ({ name, policy }) =>
    objects.delete(secret(name), undefined, undefined, undefined, undefined, policy),
};

await follow();
for await (const line of createInterface({ input: process.stdin })) {
  const { run, ...asked } = JSON.parse(line);
  try {
    const answer = await commands[run](asked);
    tell({ done: run, value: Array.isArray(answer) ? answer : (answer.spec?.displayName ?? null) });
  } catch (error) {
    if (error.code === undefined) throw error;
    tell({ done: run, code: error.code });
  }
}
process.exit(0);
