/** What ranks waited for data: the wait of a step over time, rates, sizes of requests, and the share of what storage gives. */

import { html, useMemo } from "../../vendor/htm-preact-3.1.1.js";
import { ofRun } from "../../api.js";
import { Chart } from "../../charts.js";
import { duration, many, number, quantity } from "../../format.js";
import { useData, useTick } from "../../hooks.js";
import { Finding } from "../../parts/findings.js";
import { at } from "../../routes.js";
import { Empty, Figures, Loaded, Missing, Panel, Table, Words } from "../../ui.js";

const ENDED = new Set(["finished", "failed", "cancelled"]);
const BINARY = ["B", "KiB", "MiB", "GiB", "TiB"];
const PLANNED = [
  { name: "Data set", of: (one) => html`<span class="name">${one.name}</span>` },
  { name: "Kind", short: true, roomy: true, of: (one) => one.kind },
  { name: "Samples", short: true, right: true, of: (one) => number(one.samples) },
  { name: "Size", short: true, right: true, of: (one) => quantity(one.bytes, "bytes") },
  { name: "Where", of: (one) => html`<span class="mono tiny">${one.place}</span>` },
  { name: "Tier", short: true, roomy: true, of: (one) => one.tier || html`<span class="soft">–</span>` },
  { name: "Licence", of: (one) => one.licence || html`<span class="soft">–</span>` },
];

const wait = (seconds) => (seconds > 0 && seconds < 0.001 ? quantity(1e6 * seconds, "µs", 2) : duration(seconds));
const share = (value) => quantity(value, "ratio", 2);
const columns = (run) => [
  { name: "Rank", right: true, of: (one) => html`<a href=${at("run", run, "rank", String(one.rank))}>${one.rank}</a>` },
  { name: "Node", short: true, of: (one) => (one.node ? html`<a href=${at("run", run, "node", one.node)}>${one.node}</a>` : "–") },
  { name: "Waited", short: true, right: true, of: (one) => share(one.wait_share) },
  { name: "in a step", short: true, right: true, of: (one) => wait(one.wait_per_step_s) },
  { name: "of", short: true, right: true, roomy: true, of: (one) => wait(one.step_s) },
  { name: "Samples/s", short: true, right: true, of: (one) => number(one.samples_per_s) },
  { name: "Read", short: true, right: true, of: (one) => quantity(one.bytes_per_s, "bytes/s") },
  { name: "while reading", short: true, right: true, roomy: true, of: (one) => quantity(one.reading_bytes_per_s, "bytes/s") },
];

/** A power of two as people know it: 65536 is "64 KiB". */
function power(size) {
  const at = Math.min(BINARY.length - 1, Math.floor(Math.log2(Math.max(1, size)) / 10));
  return `${size / 1024 ** at} ${BINARY[at]}`;
}

/** Every power of two between the smallest and the largest request, with those that have none. */
function buckets(requests) {
  const counts = new Map(requests.map((one) => [one.le_bytes, one.count]));
  const found = [];
  for (let size = requests[0].le_bytes; size <= requests.at(-1).le_bytes; size *= 2) found.push([size, counts.get(size) || 0]);
  return found;
}

function Requests({ of }) {
  if (!of.requests.length) return html`<p class="soft">No requests were counted.</p>`;
  const shown = buckets(of.requests);
  const most = Math.max(...shown.map(([, count]) => count));
  const all = shown.reduce((sum, [, count]) => sum + count, 0);
  return html`<table class="histogram">
    <caption class="hidden">Requests to storage by size</caption>
    <tbody>${shown.map(([size, count]) => html`<tr key=${size}>
      <th scope="row">≤ ${power(size)}</th>
      <td class="mark"><i style=${{ width: `${(100 * count) / most}%` }}></i></td>
      <td class="right">${number(count)}</td><td class="right soft">${share(count / all)}</td>
    </tr>`)}</tbody>
  </table>`;
}

function Curve({ times, lines, unit, label, ...shared }) {
  const drawn = useMemo(() => lines.map((line, colour) => ({ name: line.name, values: line.values.map((value) => value ?? NaN), colour })), [lines]);
  if (!times.length) return html`<p class="soft">Nothing was told in this time.</p>`;
  return html`<${Chart} x=${times} lines=${drawn} unit=${unit} height=${130} low=${0} ...${shared} label=${label} />`;
}

function DataSet({ of, run, ...shared }) {
  const curve = of.curve;
  const waits = [{ name: "mean over the ranks", values: curve.wait_per_step_s }];
  if (of.ranks > 1) waits.push({ name: "the rank that waited most", values: curve.wait_per_step_most_s });
  return html`<${Panel} title=${of.name} note=${html`<${Words} text=${of.text} />`}>
    <${Figures} items=${[
      ["of the time waited", of.wait_share === null ? null : share(of.wait_share)],
      ["waited in a step", of.wait_per_step_s === null ? null : wait(of.wait_per_step_s)],
      ["samples/s", of.samples_per_s === null ? null : number(of.samples_per_s)],
      ["read", of.bytes_per_s === null ? null : quantity(of.bytes_per_s, "bytes/s")],
      ["of the limit", of.share_of_limit === null ? "not measured" : share(of.share_of_limit), of.limit_text],
      ["epoch", of.epoch],
      ["samples given", number(of.totals.samples)],
      ["files opened", number(of.totals.opens)],
      of.totals.skipped > 0 && ["skipped", number(of.totals.skipped)],
    ]} />
    <div class="resource"><div class="line"><h3>Wait for data in a step</h3></div>
    <${Curve} times=${curve.times} lines=${waits} unit="seconds" ...${shared} label=${`Wait for data in a step of ${of.name} over time`} />
    ${of.ranks > 1 && html`<ul class="legend">${waits.map((line, colour) => html`<li><i class=${`key c${colour}`} aria-hidden="true"></i>${line.name}</li>`)}</ul>`}</div>
    <div class="resource"><div class="line"><h3>Read by all ranks</h3></div>
    <${Curve} times=${curve.times} lines=${[{ name: "bytes per second", values: curve.bytes_per_s }]} unit="bytes/s" ...${shared} label=${`Bytes per second read of ${of.name} over time`} /></div>
    <div class="resource"><div class="line"><h3>Sizes of requests</h3></div><${Requests} of=${of} /></div>
    <div class="resource"><div class="line"><h3>Ranks that waited most</h3></div>
    <${Table} caption=${`Ranks that waited most for ${of.name}`} columns=${columns(run)} rows=${of.by_rank} id=${(one) => one.rank} />
    ${of.ranks > of.by_rank.length && html`<p class="soft">${many(of.ranks - of.by_rank.length, "rank")} waited less.</p>`}</div>
  <//>`;
}

export default function Data({ run, doc, range, setRange, whole }) {
  const live = !ENDED.has(doc.state);
  const tick = useTick(live ? run : null, ["logged", "samples", "state"], 3_000);
  const asked = range ? { start: range[0], stop: range[1] } : {};
  const state = useData(ofRun(run, "data", asked), { tick, keep: run });
  return html`<h1>Data</h1>
    <${Loaded} state=${state} what="data">${(found) => {
      const told = found.start !== null && found.stop > found.start ? [found.start, found.stop] : whole;
      const shared = { range: range || told, onRange: setRange, sync: `time-${run}` };
      const accounts = doc.data || [];
      return html`${accounts.length > 0 && html`<${Panel} title="Samples that were trained on"><ul class="missing">${accounts.map((one) => html`<li key=${one.set}>${one.set}: ${one.text}</li>`)}</ul><//>`}
        ${found.findings.length > 0 && html`<${Panel} title="What to change"><ul class="missing">${found.findings.map((one) => html`<${Finding} key=${one.text} run=${run} finding=${one} />`)}</ul><//>`}
        ${found.planned.length > 0 && html`<${Panel} title="Data sets"><${Table} caption="Data sets of the job" columns=${PLANNED} rows=${found.planned} id=${(one) => one.name} /><//>`}
        ${found.sets.map((one) => html`<${DataSet} key=${one.name} of=${one} run=${run} ...${shared} />`)}
        ${found.planned.length + found.sets.length === 0 && html`<${Empty} title="This run names no data sets."><p>Add <code>[data.NAME]</code> with <code>from = "…"</code> to the job document, and read it by <code>cordee.dataset("NAME", batch=…)</code>.</p><//>`}
        ${found.missing.length > 0 && html`<${Panel} title="Not shown"><${Missing} missing=${found.missing} /><//>`}`;
    }}<//>`;
}
