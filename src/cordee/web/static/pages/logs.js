/** What all ranks of a run printed. */

import { html } from "../vendor/htm-preact-3.1.1.js";
import { LogView } from "../parts/logview.js";

export default function Logs({ run, doc, query, setQuery }) {
  const rank = query.rank === undefined || query.rank === "" ? undefined : query.rank;
  return html`<div class="title"><h1>Logs</h1>
      <label class="field"><span>Rank</span><input type="number" min="0" inputmode="numeric" placeholder="all" value=${query.rank ?? ""} onChange=${(event) => setQuery({ rank: event.target.value })} /></label>
    </div>
    <${LogView} key=${rank} run=${run} rank=${rank} live=${doc.state === "running" || doc.state === "queued"} query=${query} setQuery=${setQuery} />`;
}
