// The texts about connecting a cluster. The first load does not need them.

export const clusterTexts = {
  install: 'Install the agent',
  run: 'Run this line where helm has the context of the cluster. The agent opens all connections itself.',
  once: 'The line has the access key of the agent. It is shown once: copy it now.',
  making: 'Making the access key…',
  noKey: 'KEY is the access key of the agent. If you have lost it, make a new one.',
  newKey: 'New key',
  newKeyOf: (cluster: string) => `New key for the agent of ${cluster}`,
  oldKey: (key: string) => `If the access key ${key} exists, its value stops at once. An agent that runs with it loses its connection until it has the new value.`,
  keyExists: (key: string) => `An access key ${key} exists already, and keeps its value. “New key” replaces the value, if the key is the one of this agent.`,
  otherKey: (key: string) => `The access key ${key} is not the one of the agent of this cluster. It was not changed. If it is not needed, delete it, and try again.`,
  authority: 'CA.pem has the certificate authority of this server. It is in your kubeconfig, as certificate-authority-data.',
  hint: 'The page shows when the cluster is ready.',
  connected: (cluster: string) => `${cluster} is ready.`,
  waiting: 'Waiting for the agent. This turns to Ready by itself.',
  open: 'Open the cluster',
};
