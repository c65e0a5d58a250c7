/** Findings, each with a link to the page that shows its evidence. */

import { html } from "../vendor/htm-preact-3.1.1.js";
import { at, withQuery } from "../routes.js";
import { Given, Icon, Time, plain, shape, tone } from "../ui.js";

const ORDER = { error: 0, warn: 1, info: 2 };
const PAGES = new Set(["heat", "bands", "logs", "data", "storage", "score", "nodes", "findings", "hangs"]);

/** Return findings with the grave ones first. */
export const graveFirst = (findings) => [...findings].sort((one, other) => (ORDER[one.severity] ?? 3) - (ORDER[other.severity] ?? 3));

/** Return the address of the page that shows a finding's evidence, null where there is none. */
export function evidenceLink(run, evidence) {
  if (!evidence?.page) return null;
  const { node, rank, ...rest } = evidence.query || {};
  if (evidence.page === "node" && node !== undefined) return withQuery(at("run", run, "node", String(node)), rest);
  if (evidence.page === "rank" && rank !== undefined) return withQuery(at("run", run, "rank", String(rank)), rest);
  if (evidence.page === "run") return withQuery(at("run", run), rest);
  return PAGES.has(evidence.page) ? withQuery(at("run", run, evidence.page), evidence.query || {}) : null;
}

export function Finding({ run, finding }) {
  const link = evidenceLink(run, finding.evidence);
  return html`<li class=${`note ${tone(finding.severity)}`} data-row tabindex="-1">
    <${Icon} name=${shape(finding.severity)} />
    <div>
      <p><span class="strong"><span class="hidden">${finding.severity}: </span>${finding.text}</span>${link && html` <a href=${link}>show</a>`}</p>
      <${Given} of=${finding} />
      <p class="soft tiny">${finding.severity}${finding.code ? ` · ${finding.code}` : ""}${finding.at ? html` · <${Time} at=${finding.at} seconds />` : ""}</p>
      ${finding.facts && html`<details><summary class="soft tiny">facts</summary><p class="tiny mono">${plain(finding.facts)}</p></details>`}
    </div>
  </li>`;
}
