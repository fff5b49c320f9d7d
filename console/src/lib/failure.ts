// An error as data, which can also leave a worker.
import { ApiError } from './api';

export interface Failure {
  code: number;
  message: string;
  reason: string;
  causes: ApiError['causes'];
  auditId: string;
  retryAfter: number | undefined;
}

export function failureOf(cause: unknown): Failure {
  const error = cause instanceof ApiError ? cause : new ApiError(0, String((cause as Error)?.message ?? cause));
  const { code, message, reason, causes, auditId, retryAfter } = error;
  return { code, message, reason, causes, auditId, retryAfter };
}
