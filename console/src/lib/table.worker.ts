// Runs a table engine for a long list.
import { observe } from './api';
import type { View } from './row-store';
import type { Failure } from './failure';
import { TableEngine, type Snapshot, type Source, type Start, type Window } from './table-engine';

export type ToWorker =
  | { type: 'start'; source: Source; start: Start; view: View; window: Window }
  | { type: 'show'; view: View }
  | { type: 'move'; window: Window };

export type FromWorker =
  | { type: 'snapshot'; snapshot: Snapshot }
  | { type: 'failure'; failure: Failure }
  | { type: 'unauthorized'; message: string };

const post = (message: FromWorker): void => postMessage(message);
let engine: TableEngine | undefined;

const onUnauthorized = (message: string): void => post({ type: 'unauthorized', message });
observe(() => {}, onUnauthorized);

addEventListener('message', ({ data }: MessageEvent<ToWorker>) => {
  if (data.type === 'start') {
    engine = new TableEngine(data.source, {
      onSnapshot: (snapshot) => post({ type: 'snapshot', snapshot }),
      onFailure: (failure) => post({ type: 'failure', failure }),
      onUnauthorized,
    });
    engine.show(data.view);
    engine.move(data.window);
    void engine.resume(data.start);
  } else if (data.type === 'show') {
    engine?.show(data.view);
  } else {
    engine?.move(data.window);
  }
});
