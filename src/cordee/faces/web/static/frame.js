/** What stands around every page of one run: its name and state, the tabs, how old what is shown is, the stretch of time. */

import { html, useEffect, useRef, useState } from "./vendor/htm-preact-3.1.1.js";
import { ofRun } from "./api.js";
import { duration, epoch, local } from "./format.js";
import { useClock, useData, useStatus, useTick } from "./hooks.js";
import { live, serverNow } from "./live.js";
import { ROUTES, at, withQuery } from "./routes.js";
import { rangeOf, tellKeys } from "./range.js";
import { Badge, Choice, Fault, Loading } from "./ui.js";

const ENDED = new Set(["finished", "failed", "cancelled"]);
const MANY_RANKS = 2_000;
const LASTS = [
  ["", "All"],
  ["300", "5 min"],
  ["3600", "1 h"],
  ["86400", "1 d"],
];

/** Return the whole time of a run document, [from, to] in epoch seconds, null before it has begun. */
export function wholeOf(doc) {
  const from = epoch(doc.submitted_at) ?? epoch(doc.started_at) ?? firstPhase(doc);
  if (from === null) return null;
  const to = ENDED.has(doc.state) ? (epoch(doc.ended_at) ?? from + 1) : serverNow();
  return [from, Math.max(to, from + 1)];
}

const firstPhase = (doc) => epoch(doc.phases?.[0]?.start);

function Fresh({ run, ended }) {
  const status = useStatus(run);
  const heard = useRef(0);
  useClock(1);
  useEffect(
    () => live(run, (kind) => {
      if (kind !== "status" && kind !== "refused") heard.current = Date.now();
    }),
    [run],
  );
  const seconds = heard.current ? Math.round((Date.now() - heard.current) / 1000) : null;
  const age = seconds === null ? "" : seconds < 2 ? " · now" : ` · as of ${seconds < 60 ? `${seconds} s` : duration(seconds)} ago`;
  const words = { live: ended ? "complete" : "live", connecting: "connecting", stale: "stale", disconnected: "disconnected", paused: "paused" }[status];
  return html`<span class="fresh" title="The stream of this run's changes: ${status}">
    <${Badge} state=${status} text=${words} /><span class="soft age">${status === "live" && ended ? "" : age}</span>
  </span>`;
}

function Tabs({ run, place, query, doc }) {
  const keep = { start: query.start, stop: query.stop, last: query.last };
  const tabs = ROUTES.filter(([, file, , tab, folder]) => tab && (!folder || file === place.file || doc?.folders?.includes(folder)));
  const open = doc?.findings?.length || 0;
  return html`<nav class="tabs" aria-label="This run">
    ${tabs.map(([pattern, file, title]) => {
      const path = pattern.split("/").slice(2);
      return html`<a data-tab href=${withQuery(at("run", run, ...path), keep)} aria-current=${file === place.file ? "page" : undefined}>
        ${title}${file === "findings.js" && open > 0 ? html`<span class="count">${open}</span>` : ""}
      </a>`;
    })}
  </nav>`;
}

function Stretch({ range, query, setQuery }) {
  const value = query.last ?? (range ? "chosen" : "");
  const set = (last) => setQuery({ last: last || null, start: null, stop: null });
  return html`<div class="stretch">
    ${range && !query.last && html`<span class="soft">${local(range[0], { seconds: true })} – ${local(range[1], { seconds: true })}</span>`}
    <${Choice} label="Time shown" options=${LASTS} value=${value} onChange=${set} />
  </div>`;
}

/** The newest step that any rank logged, `{step, at}`, as the stream says it. */
function useNewest(run) {
  const [newest, setNewest] = useState(null);
  useEffect(() => {
    setNewest(null);
    let shown = 0;
    return live(run, (kind, data) => {
      if (kind !== "logged" || !data || Date.now() - shown < 500) return;
      const steps = Object.values(data).filter((row) => Array.isArray(row) && row[0] >= 0);
      if (!steps.length) return;
      shown = Date.now();
      const [step, at] = steps.reduce((most, row) => (row[0] > most[0] ? row : most));
      setNewest({ step, at });
    });
  }, [run]);
  return newest;
}

/** The frame; `children(given)` draws the page inside. */
export function RunFrame({ place, params, query, setQuery, children }) {
  const run = params.run;
  const [pace, setPace] = useState(1_000);
  const tick = useTick(run, ["state", "finding"], pace);
  useTick(query.last ? run : null, ["samples"], 2_000);
  const document_ = useData(ofRun(run), { tick });
  const doc = document_.data;
  const newest = useNewest(run);
  const [spoken, setSpoken] = useState("");
  const state = doc?.state;
  const before = useRef(null);
  useEffect(() => {
    if (state && before.current && before.current !== state) setSpoken(`The run is now ${state}`);
    before.current = state;
  }, [state]);
  useEffect(() => setPace(doc?.ranks?.length > MANY_RANKS ? 5_000 : 1_000), [doc?.ranks?.length > MANY_RANKS]);
  const ended = ENDED.has(state);
  const whole = doc ? wholeOf(doc) : null;
  const range = rangeOf(query, whole?.[1] ?? null);
  tellKeys(whole, range);
  useEffect(() => () => tellKeys(null, null), []);
  const setRange = (next) => setQuery({ last: null, start: next?.[0].toFixed(3), stop: next?.[1].toFixed(3) });
  if (!doc && document_.error?.status === 404)
    return html`<main id="main" tabindex="-1"><h1>Run not found</h1>
      <p class="pad">There is no run <span class="name">${run}</span> in the folders that are shown. <a href="#/runs">Back to all runs</a></p></main>`;
  return html`<div class="run-bar">
      <div class="crumbs">
        <nav aria-label="Breadcrumb"><ol>
          <li><a href="#/runs">Runs</a></li>
          <li aria-current=${place.file === "run.js" ? "page" : undefined}><a href=${at("run", run)}>${run}</a></li>
          ${place.params.node && html`<li aria-current="page">${place.params.node}</li>`}
          ${place.params.rank && html`<li aria-current="page">rank ${place.params.rank}</li>`}
        </ol></nav>
        ${state && html`<${Badge} state=${state} />`}
        <${Fresh} run=${run} ended=${ended} />
        <${Stretch} range=${range} query=${query} setQuery=${setQuery} />
      </div>
      <${Tabs} run=${run} place=${place} query=${query} doc=${doc} />
    </div>
    <p class="hidden" role="status" aria-live="polite">${spoken}</p>
    <main id="main" tabindex="-1">
      ${document_.error && html`<${Fault} error=${document_.error} what="the run" />`}
      ${doc ? children({ params, query, setQuery, run, doc, newest, range, setRange, whole }) : !document_.error && html`<${Loading} what="the run" />`}
    </main>`;
}
