/** The nodes of a run: what vetting said, which ranks run where. */

import { html, useState } from "../vendor/htm-preact-3.1.1.js";
import { many, number, ranges } from "../format.js";
import { at } from "../routes.js";
import { called, said } from "../parts/vetting.js";
import { Badge, Choice, Empty, Icon, NoneYet, Panel, Search, Table, shape, sorted, tone } from "../ui.js";

const PAGE = 200;
const VERDICTS = ["bad", "unknown", "suspect", "healthy"];

const columns = (run) => [
  { name: "Node", sort: (node) => node.node, of: (node) => html`<a class="name" href=${at("run", run, "node", node.node)}>${node.node}</a>` },
  { name: "Verdict", short: true, sort: (node) => VERDICTS.indexOf(node.verdict), of: (node) => html`<${Badge} state=${node.verdict} />` },
  { name: "Role", short: true, sort: (node) => node.role, of: (node) => html`<${Badge} state=${node.role} />` },
  { name: "Ranks", sort: (node) => node.ranks?.[0], of: (node) => (node.ranks?.length ? ranges(node.ranks) : html`<span class="soft">none</span>`) },
  {
    name: "Worth knowing",
    of: (node) => html`${node.reason ? html`<p>${node.reason}</p>` : ""}${(node.results || []).filter((result) => result.status !== "pass").map(
      (result) => html`<p><span class=${tone(result.status)}><${Icon} name=${shape(result.status)} /></span> ${said(result)}</p>`)}`,
  },
];

export default function Nodes({ run, doc, query, setQuery }) {
  const [shown, setShown] = useState(PAGE);
  const text = (query.text || "").toLowerCase();
  const verdict = query.verdict || "";
  const all = doc.nodes || [];
  const shape_ = columns(run);
  const sort = { by: query.sort || "Verdict", down: query.order === "down" };
  const rows = sorted(all.filter((node) => (!verdict || node.verdict === verdict) && [node.node, node.host, node.role, ...(node.results || []).map(called)].join(" ").toLowerCase().includes(text)), shape_, sort);
  const count = (of) => all.filter((node) => node.verdict === of).length;
  if (!all.length) return html`<h1>Nodes</h1><${NoneYet} doc=${doc} title="No node has joined"><p>Nodes are here as soon as the scheduler gave them and their agents called.</p><//>`;
  return html`<div class="title"><h1>Nodes</h1><p class="soft">${many(all.length, "node")}</p></div>
    <div class="bar">
      <${Search} label="Node, role, check" value=${query.text || ""} placeholder="nid0012 …" onInput=${(value) => setQuery({ text: value })} />
      <${Choice} label="Verdict" options=${[["", "All"], ...VERDICTS.filter(count).map((of) => [of, `${of} ${count(of)}`])]} value=${verdict} onChange=${(value) => setQuery({ verdict: value })} />
    </div>
    <${Panel}>
      ${rows.length ? html`<${Table} caption="Nodes" columns=${shape_} rows=${rows.slice(0, shown)} id=${(node) => node.node} sort=${sort}
        onSort=${(next) => setQuery({ sort: next.by, order: next.down ? "down" : null })} rowProps=${(node) => ({ "data-row": node.node })} />` : html`<${Empty} title="No node matches." />`}
      ${rows.length > shown && html`<p class="pad"><button type="button" onClick=${() => setShown(shown + 5 * PAGE)}>Show more (${number(rows.length - shown)})</button></p>`}
    <//>`;
}
