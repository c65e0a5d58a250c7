/** What all ranks of a run printed. */

import { html } from "../vendor/htm-preact-3.1.1.js";
import { LogView } from "../parts/logview.js";

export default function Logs({ run, doc, query, setQuery }) {
  const rank = query.rank === undefined || query.rank === "" ? undefined : query.rank;
  const live = doc.state === "running" || doc.state === "queued";
  const choose = html`<label class="field narrow"><span>Rank</span><input type="number" min="0" inputmode="numeric" placeholder="all" value=${query.rank ?? ""} onChange=${(event) => setQuery({ rank: event.target.value })} /></label>`;
  return html`<h1>Logs</h1><${LogView} key=${rank} run=${run} rank=${rank} live=${live} query=${query} setQuery=${setQuery} first=${choose} />`;
}
