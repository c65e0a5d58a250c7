/** What happened in a run, as marks on an axis of time that the timeline and all charts share. */

import { epoch } from "../format.js";

const KINDS = {
  checkpoint: { colour: "c2", name: "checkpoint", shape: "triangle" },
  attempt: { colour: "soft", name: "attempt", shape: "line" },
  failure: { colour: "bad", name: "error", shape: "cross" },
  finding: { colour: "warn", name: "finding", shape: "diamond" },
};

/** Return `[{x, width?, kind, colour, shape, text}]` in the order of time. */
export function marksOf(doc) {
  const marks = [];
  const add = (kind, x, text, width) => {
    if (x !== null && x !== undefined) marks.push({ ...KINDS[kind], kind, x, text, width });
  };
  for (const saved of doc.checkpoints || []) {
    const end = epoch(saved.time);
    const seconds = saved.seconds > 0 ? saved.seconds : undefined;
    add("checkpoint", end === null ? null : end - (seconds || 0), saved.name || `step ${saved.step}`, seconds);
  }
  for (const [at, attempt] of (doc.attempts || []).entries()) {
    if (at > 0) add("attempt", epoch(attempt.started_at), `attempt ${attempt.attempt} begins`);
  }
  for (const finding of doc.findings || []) {
    add(finding.severity === "error" ? "failure" : "finding", epoch(finding.at), finding.text);
  }
  return marks.sort((one, other) => one.x - other.x);
}
