/** One rank: where it runs, what it uses, what it prints. */

import { html } from "../vendor/htm-preact-3.1.1.js";
import { ofRun } from "../api.js";
import { useData, useTick } from "../hooks.js";
import { at } from "../routes.js";
import { Lines } from "../parts/lines.js";
import { LogView } from "../parts/logview.js";
import { marksOf } from "../parts/marks.js";
import { Badge, Figures, Loaded, Missing, Panel, plain } from "../ui.js";

const ENDED = new Set(["finished", "failed", "cancelled"]);

/** Return a rank's place in the parallel layout in words: "dp 3 of 32, tp 1 of 4". */
export function placeWords(place, sizes) {
  const names = Object.keys(place || {});
  return names.map((name) => `${name} ${place[name]}${sizes?.[name] ? ` of ${sizes[name]}` : ""}`).join(", ");
}

export default function Rank({ run, doc, params, query, setQuery, range, setRange, whole }) {
  const live = !ENDED.has(doc.state);
  const tick = useTick(live ? run : null, ["state"], 2_000);
  const state = useData(ofRun(run, `ranks/${params.rank}`), { tick });
  const shared = { run, range: range || whole, chosen: range, setRange, marks: marksOf(doc), live };
  const number = Number(params.rank);
  return html`<div class="title"><h1>Rank ${params.rank}</h1>
      <nav class="aside links" aria-label="Neighbours">
        ${number > 0 && html`<a href=${at("run", run, "rank", String(number - 1))}>← rank ${number - 1}</a>`}
        ${number + 1 < doc.ranks.length && html`<a href=${at("run", run, "rank", String(number + 1))}>rank ${number + 1} →</a>`}
      </nav>
    </div>
    <${Loaded} state=${state} what="the rank">${(rank) => html`<section class="panel" aria-label="This rank"><${Figures} items=${[
        ["status", html`<${Badge} state=${rank.status || "unknown"} />`],
        ["node", rank.node ? html`<a href=${at("run", run, "node", rank.node)}>${rank.node}</a>` : null],
        ["process", rank.pid],
        ["exit code", rank.code],
        ["signal", rank.signal],
        ["local rank", rank.local_rank],
        ["place", placeWords(rank.place, rank.sizes) || null],
        ["CPUs", rank.cpus === undefined || rank.cpus === null ? null : plain(rank.cpus)],
        ["GPUs", rank.gpus?.length ? html`<span class="small">${plain(rank.gpus)}</span>` : null],
      ]} /></section>
      <${Missing} missing=${rank.missing} />
    <${Lines} ...${shared} title="What it uses" wanted=${[["gpu", ...(rank.gpus || [])], ["rank", params.rank]]} />
    <section class="panel" aria-labelledby="h-printed"><header><h2 id="h-printed">What it printed</h2></header>
      <div class="stack"><${LogView} key=${params.rank} run=${run} rank=${params.rank} live=${live} query=${query} setQuery=${setQuery} /></div>
    </section>`}<//>`;
}
