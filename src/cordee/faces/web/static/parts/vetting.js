/** What vetting said: nodes x checks, each cell a shape and a colour. */

import { html, useState } from "../vendor/htm-preact-3.1.1.js";
import { many, quantity } from "../format.js";
import { at } from "../routes.js";
import { Badge, Choice, Icon, Panel, shape, tone } from "../ui.js";

const MOST_ROWS = 40;
const FEW_ROWS = 6;
const WORST = ["fail", "unknown", "warn", "skip", "pass"];
const BAD = new Set(["fail", "unknown", "warn"]);

/** What a protocol calls the check, else the check's own name. */
export const called = (result) => result.name || result.check;

/** What a result says in words. */
export function said(result) {
  const value = result.value === null || result.value === undefined ? "" : ` ${quantity(result.value, result.unit)}`;
  const least = result.threshold === null || result.threshold === undefined || typeof result.threshold === "object" ? "" : ` (threshold ${quantity(result.threshold, result.unit)})`;
  return `${called(result)}: ${result.status}${value}${least}${result.evidence ? `: ${result.evidence}` : ""}`;
}

export function Vetting({ run, doc }) {
  const [all, setAll] = useState(false);
  const nodes = (doc.nodes || []).filter((node) => node.results?.length);
  if (!nodes.length) return null;
  const checks = [...new Set(nodes.flatMap((node) => node.results.map(called)))];
  const odd = nodes.filter((node) => node.verdict !== "healthy" || node.results.some((result) => BAD.has(result.status)));
  const shown = (all ? nodes : odd.length ? odd : nodes).slice(0, all || odd.length ? MOST_ROWS : FEW_ROWS);
  const counts = WORST.map((status) => [status, nodes.reduce((sum, node) => sum + node.results.filter((result) => result.status === status).length, 0)]);
  return html`<${Panel} title="Vetting" aside=${odd.length > 0 && odd.length < nodes.length
    ? html`<${Choice} label="Nodes shown" options=${[[false, `worth a look ${odd.length}`], [true, `all ${nodes.length}`]]} value=${all} onChange=${setAll} />`
    : odd.length ? many(nodes.length, "node") : `all ${many(nodes.length, "node")} healthy`}>
    <div class="table" tabindex="0" role="region" aria-label="Vetting of nodes"><table class="vetting">
      <caption class="hidden">Nodes and what each check said of them</caption>
      <thead><tr><th scope="col">Node</th><th scope="col">Verdict</th>${checks.map((check) => html`<th scope="col">${check}</th>`)}</tr></thead>
      <tbody>${shown.map((node) => html`<tr key=${node.node} data-row=${node.node}>
        <th scope="row"><a href=${at("run", run, "node", node.node)}>${node.node}</a></th>
        <td><${Badge} state=${node.verdict} /></td>
        ${checks.map((check) => {
          const result = node.results.find((one) => called(one) === check);
          if (!result) return html`<td class="soft" title="not run on this node">–</td>`;
          const value = result.value === null || result.value === undefined || typeof result.value === "object" ? "" : quantity(result.value, result.unit);
          return html`<td title=${said(result)}><span class=${tone(result.status)}><${Icon} name=${shape(result.status)} /><span class="hidden"> ${result.status} </span></span> <span class="value">${value}</span></td>`;
        })}
      </tr>`)}</tbody>
    </table></div>
    ${shown.length < (all ? nodes.length : odd.length || nodes.length) && html`<p class="soft">${many(nodes.length - shown.length, "more node")}: <a href=${at("run", run, "nodes")}>all nodes</a></p>`}
    <p class="legend pad">${counts.filter(([, count]) => count).map(([status, count]) => html`<span class="legend-item"><${Badge} state=${status} text=${`${status} ${count}`} /></span>`)}</p>
  <//>`;
}
