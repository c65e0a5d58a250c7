/** Everything that was found in a run. */

import { html } from "../vendor/htm-preact-3.1.1.js";
import { ofRun } from "../api.js";
import { useData, useTick } from "../hooks.js";
import { Finding, graveFirst } from "../parts/findings.js";
import { Choice, Empty, Loaded, Search } from "../ui.js";

const SEVERITIES = ["error", "warn", "info"];

export default function Findings({ run, query, setQuery }) {
  const tick = useTick(run, ["finding", "state"], 1_500);
  const state = useData(ofRun(run, "findings"), { tick });
  const severity = query.severity || "";
  const text = (query.text || "").toLowerCase();
  return html`<h1>Findings</h1>
    <${Loaded} state=${state} what="the findings">${({ findings }) => {
      if (!findings.length) return html`<${Empty} title="Nothing was found."><p>What vetting, the supervisor and the records notice is written here, with what to do about it.</p><//>`;
      const count = (of) => findings.filter((one) => one.severity === of).length;
      const shown = graveFirst(findings).filter((one) => (!severity || one.severity === severity) && `${one.text} ${one.code}`.toLowerCase().includes(text));
      return html`<div class="bar">
          <${Search} label="Text or code" value=${query.text || ""} onInput=${(value) => setQuery({ text: value })} />
          <${Choice} label="Severity" options=${[["", `All ${findings.length}`], ...SEVERITIES.filter(count).map((of) => [of, `${of} ${count(of)}`])]} value=${severity} onChange=${(value) => setQuery({ severity: value })} />
        </div>
        ${shown.length ? html`<ul class="missing">${shown.slice(0, 500).map((finding) => html`<${Finding} run=${run} finding=${finding} />`)}</ul>` : html`<${Empty} title="No finding matches." />`}
        ${shown.length > 500 && html`<p class="soft">The gravest 500 of ${shown.length} are shown.</p>`}`;
    }}<//>`;
}
