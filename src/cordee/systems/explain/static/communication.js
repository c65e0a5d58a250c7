/** What the Flight Recorder's dumps say: who broke the collective, who sent how much to whom, and who waited for whom. */

import { html, useMemo } from "../../vendor/htm-preact-3.1.1.js";
import { ofRun } from "../../api.js";
import { duration, many, number, quantity, ranges } from "../../format.js";
import { useData, useEvery } from "../../hooks.js";
import { at } from "../../routes.js";
import { Choice, Empty, Figures, Icon, Loaded, Loading, Missing, Panel, Select, Table, Time } from "../../ui.js";
import { Matrix } from "./matrix.js";

const MOST_PAIRS = 10;
const MOST_RANKS = 16;
const BY = { rank: "rank", node: "node", nodes: "nodes in a row", ranks: "ranks in a row" };
const soft = (text) => html`<span class="soft">${text}</span>`;
const bytes = (value) => quantity(value, "bytes");
const seconds = (value) => (value < 0.001 ? `${number(1e6 * value, 2)} µs` : value < 1 ? `${number(1e3 * value, 3)} ms` : duration(value));
const sizes = (one) => (one.least_ranks === one.most_ranks ? number(one.least_ranks) : `${number(one.least_ranks)} – ${number(one.most_ranks)}`);

const DIMENSIONS = [
  { name: "Dimension", of: (one) => html`<span class="name">${one.name}</span>` },
  { name: "Groups", short: true, right: true, of: (one) => number(one.groups) },
  { name: "Ranks in each", short: true, right: true, of: sizes },
  { name: "Calls", title: "Of all ranks", short: true, right: true, of: (one) => number(one.calls) },
  { name: "Sent", short: true, right: true, of: (one) => bytes(one.bytes) },
  { name: "Waits in sum", short: true, right: true, of: (one) => (one.wait_s > 0 ? seconds(one.wait_s) : soft("–")) },
];

function Culprit({ run, finding }) {
  const ranks = finding.ranks.length ? finding.ranks : finding.suspects;
  return html`<li class=${`note ${finding.kind === "unknown" ? "ask" : "bad"}`}>
    <${Icon} name=${finding.kind === "unknown" ? "ask" : "cross"} />
    <div>
      <p class="strong">${finding.kind}: ${finding.text}</p>
      <dl class="given">
        ${ranks.length > 0 && html`<dt>${finding.ranks.length ? "ranks" : "suspects"}</dt><dd class="links">${ranks.slice(0, MOST_RANKS).map((rank) => html`<a key=${rank} href=${at("run", run, "rank", String(rank))}>${rank}</a>`)}${ranks.length > MOST_RANKS && soft(`and ${number(ranks.length - MOST_RANKS)} more`)}</dd>`}
        ${finding.where && html`<dt>where</dt><dd class="mono">${finding.where}</dd>`}
        ${finding.expected && html`<dt>expected</dt><dd class="mono">${finding.expected}</dd>`}
        <dt>next</dt><dd>${finding.next}</dd>
      </dl>
    </div>
  </li>`;
}

function Said({ run, flight }) {
  const left = [...flight.refused.map((one) => `not read: ${one.path}: ${one.why}`), ...flight.notes];
  return html`<${Panel} title="Who broke the collective" aside=${soft(`${many(flight.dumps, "dump")} of ${many(flight.world, "rank")}${flight.attempt === null ? "" : `, attempt ${flight.attempt}`}`)}>
    ${flight.findings.length > 0 && html`<ul class="missing">${flight.findings.map((finding) => html`<${Culprit} key=${finding.text} run=${run} finding=${finding} />`)}</ul>`}
    ${flight.findings.length === 0 && html`<p class="said good"><${Icon} name="tick" /><span>No hang is seen in the dumps: whatever was called has ended.</span></p>`}
    ${flight.missing_ranks.length > 0 && html`<p class="said ask"><${Icon} name="ask" /><span>No dump of ${many(flight.missing_ranks.length, "rank")}: ${some(flight.missing_ranks)}.</span></p>`}
    ${left.map((line) => html`<p class="said soft"><${Icon} name="info" /><span>${line}</span></p>`)}
  <//>`;
}

function some(ranks) {
  const parts = ranges(ranks).split(", ");
  return parts.length > MOST_RANKS ? `${parts.slice(0, MOST_RANKS).join(", ")} …` : parts.join(", ");
}

const bare = (label) => label.replace(/^ranks? /, "");

function Picture({ found, what }) {
  const { traffic } = found;
  const waits = what === "waits";
  const cells = waits ? found.waited : found.sent;
  const labels = useMemo(() => traffic.cells.map((cell) => bare(cell.label)), [traffic]);
  // What a rank sends is known from either dump of a pair, who waits from its own and the last one's.
  const unknown = useMemo(() => {
    const gone = traffic.cells.map((cell) => cell.missing === cell.count);
    if (!gone.some(Boolean)) return null;
    return waits ? (row, column) => gone[row] || gone[column] : (row, column) => gone[row] && gone[column];
  }, [traffic, waits]);
  const names = traffic.cells.map((cell) => cell.label);
  const show = waits ? seconds : bytes;
  const say = (row, column, value) => {
    const pair = waits ? `${names[row]} waited for ${names[column]}` : `${names[row]} → ${names[column]}`;
    if (value === null) return `${pair}: ${unknown?.(row, column) ? "not known, there is no dump" : "nothing"}`;
    return `${pair}: ${show(value)}`;
  };
  if (!cells.length) return html`<${Empty} title=${waits ? "No waits are known in this dimension." : "Nothing was sent in this dimension."}><p>${waits ? "Sends and receives have no waits: ranks number them each for itself." : ""}</p><//>`;
  const most = [...cells].sort((one, other) => other[2] - one[2]).slice(0, MOST_PAIRS);
  const pairs = [
    { name: waits ? "Who waited" : "From", of: ([row]) => html`<span class="name">${names[row]}</span>` },
    { name: waits ? "For whom" : "To", of: ([, column]) => html`<span class="name">${names[column]}</span>` },
    { name: waits ? "Waited" : "Sent", short: true, right: true, of: ([, , value]) => show(value) },
  ];
  const sums = waits ? lasts(cells) : [];
  return html`<div class="beside">
    <${Matrix} labels=${labels} cells=${cells} unknown=${unknown} show=${show} say=${say} rowsAre=${waits ? "who waited" : "from"} columnsAre=${waits ? "for whom" : "to"}
      label=${`${waits ? "Waits" : "Bytes"} between ${number(labels.length)} ${BY[traffic.by]}s in ${found.dimension}; the largest are listed beside it`} />
    <div class="stack">
      ${sums.length > 0 && html`<div><h3>Waited for most</h3><${Table} caption="Waited for most" columns=${LAST(names)} rows=${sums} id=${(row) => row.place} /></div>`}
      <div><h3>${waits ? "Longest waits" : "Most sent"}</h3><${Table} caption=${waits ? "Longest waits" : "Most sent"} columns=${pairs} rows=${most} id=${([row, column]) => `${row} ${column}`} /></div>
    </div>
  </div>`;
}

const LAST = (names) => [
  { name: "For whom", of: (row) => html`<span class="name">${names[row.place]}</span>` },
  { name: "By", short: true, right: true, of: (row) => many(row.count, "other") },
  { name: "In sum", short: true, right: true, of: (row) => seconds(row.sum) },
];

/** The cells that others waited for most. */
function lasts(cells) {
  const sums = new Map();
  for (const [row, column, value] of cells) {
    if (row === column) continue;
    const one = sums.get(column) || { place: column, count: 0, sum: 0 };
    one.count += 1;
    one.sum += value;
    sums.set(column, one);
  }
  return [...sums.values()].sort((one, other) => other.sum - one.sum).slice(0, 5);
}

function Counted({ found }) {
  const { traffic, assumed } = found;
  const clocks = Object.entries(traffic.clocks);
  return html`<${Panel} title="How it was counted">
    <ul class="stack small">
      <li>A dump says what was called, not how it was carried out. Assumed is: <dl class="given">${Object.entries(assumed).map(([op, how]) => html`<dt>${op}</dt><dd>${how}</dd>`)}</dl></li>
      <li>A wait is how much earlier than the last rank another one made the same call. On GPUs a host runs ahead of its GPU: short waits say little. Sends and receives have none: ranks number them each for itself.</li>
      ${traffic.missing > 0 && html`<li>Of ${many(traffic.missing, "rank")} without a dump only what others received from them is counted; waits are the least that was waited. Pairs of which nothing is known are striped.</li>`}
      ${traffic.newest !== null && html`<li>The newest ${number(traffic.newest)} calls of each rank were counted.</li>`}
      ${clocks.length > 0 && html`<li>Clocks of ${many(clocks.length, "rank")} were apart and set right by when calls ended: ${clocks.slice(0, MOST_RANKS).map(([rank, by]) => `rank ${rank} by ${number(by)} s`).join(", ")}${clocks.length > MOST_RANKS ? " …" : ""}.</li>`}
      ${traffic.without_waits.length > 0 && html`<li>Without waits, for their clocks are over a minute apart: ${some(traffic.without_waits)}.</li>`}
      ${Object.entries(traffic.uncounted).map(([why, count]) => html`<li key=${why}>Not counted: ${number(count)} ${why}.</li>`)}
    </ul><//>`;
}

export default function Communication({ run, query, setQuery }) {
  const tick = useEvery(3);
  const what = query.what === "waits" ? "waits" : "sent";
  const first = useData(ofRun(run, "flight", { dimension: query.dimension }), { keep: run });
  const waiting = first.data?.status === "computing";
  const again = useData(waiting ? ofRun(run, "flight", { dimension: query.dimension }) : null, { tick, keep: run });
  const state = waiting && again.data ? again : first;
  return html`<h1>Communication</h1>
    <${Loaded} state=${state} what="the dumps">${(found) => {
      if (found.missing.length) return html`<${Missing} missing=${found.missing} />`;
      if (!found.flight) return html`<${Loading} what="the dumps: they are being read" />`;
      const { traffic } = found;
      return html`<${Said} run=${run} flight=${found.flight} />
        ${traffic && traffic.calls > 0 && html`<section class="panel" aria-label="In short"><${Figures} items=${[
            ["ranks", number(traffic.ranks)],
            ["calls counted", number(traffic.calls)],
            ["sent", bytes(traffic.dimensions.reduce((sum, one) => sum + one.bytes, 0))],
            ["in", duration(traffic.last - traffic.first)],
            ["until", html`<${Time} at=${traffic.last} seconds />`],
          ]} /></section>
          <${Panel} title=${what === "waits" ? "Who waited for whom" : "Who sent how much to whom"} aside=${soft(`by ${BY[traffic.by]}`)}>
            <div class="bar">
              <${Choice} label="What is shown" options=${[["sent", "Bytes"], ["waits", "Waits"]]} value=${what} onChange=${(next) => setQuery({ what: next === "sent" ? null : next })} />
              <${Select} label="Dimension" options=${traffic.dimensions.map((one) => [one.name, one.name])} value=${found.dimension} onChange=${(dimension) => setQuery({ dimension })} />
            </div>
            <${Picture} found=${found} what=${what} /><//>
          <${Panel} title="By dimension"><${Table} caption="By dimension" columns=${DIMENSIONS} rows=${traffic.dimensions} id=${(one) => one.name} /><//>
          <${Counted} found=${found} />`}`;
    }}<//>`;
}
