// When the server's decisions have to be asked for again.
class Decisions {
  /** Grows with each write that may have changed a decision. */
  turn = $state(0);
}

export const decisions = new Decisions();
