/** One run at a glance. */

import { html, useEffect, useState } from "../vendor/htm-preact-3.1.1.js";
import { duration, epoch, many, number, ranges } from "../format.js";
import { useClock } from "../hooks.js";
import { serverNow } from "../live.js";
import { ROUTES, at, withQuery } from "../routes.js";
import { Badge, Figures, Icon, Missing, Panel, Progress, Table, Time, shape } from "../ui.js";
import { Children } from "../parts/children.js";
import { Finding, graveFirst } from "../parts/findings.js";
import { Logged } from "../parts/logged.js";
import { marksOf } from "../parts/marks.js";
import { Resources } from "../parts/resources.js";
import { ScoreCard } from "../parts/score_card.js";
import { Timeline } from "../parts/timeline.js";
import { Vetting } from "../parts/vetting.js";

/** Whether it is, or will be, more than the runs below it. */
const hasRanks = (doc) => !doc.children?.length || doc.attempts?.length > 0;

const ENDED = new Set(["finished", "failed", "cancelled"]);

function progressOf(doc, newest) {
  const given = doc.progress || {};
  const fresh = newest && newest.at > (given.at ?? 0) && !ENDED.has(doc.state);
  const step = fresh ? newest.step : (given.step ?? doc.step);
  const total = given.total ?? doc.total;
  const known = step !== null && step !== undefined;
  const share = known && total ? (step + 1) / total : (given.ratio ?? NaN);
  const rate = given.steps_per_s ?? null;
  const remaining = fresh && rate > 0 && total ? (total - step - 1) / rate : (given.remaining_s ?? null);
  return { step: known ? step : null, total, share, remaining, rate };
}

function Now({ doc, newest }) {
  useClock(1);
  const began = epoch(doc.started_at);
  const ended = ENDED.has(doc.state);
  const { step, total, share, remaining, rate } = progressOf(doc, newest);
  const lasted = began === null ? null : (epoch(doc.ended_at) ?? serverNow()) - began;
  const done = Number.isFinite(share) ? `${share >= 1 ? 100 : number(Math.floor(1000 * share) / 10, 3)} %` : null;
  const words = step === null ? "no step was logged yet" : total ? `step ${number(step)} of ${number(total)}` : `step ${number(step)}`;
  const active = doc.nodes.filter((node) => node.role === "active");
  const running = doc.ranks.filter((rank) => rank.status === "running").length;
  const failed = doc.ranks.filter((rank) => rank.status === "failed").length;
  const own = hasRanks(doc);
  return html`<section class="panel" aria-label="Now">
    <${Figures} items=${[
      ["state", html`<${Badge} state=${doc.state} />`],
      ["done", done],
      own && ["step", step === null ? "–" : total ? `${number(step)} / ${number(total)}` : number(step), words],
      !ended && ["remaining", remaining === null ? null : `about ${duration(remaining)}`],
      rate && ["steps per second", number(rate)],
      [ended ? "lasted" : "running for", lasted === null ? null : duration(lasted)],
      own && ["nodes", html`<a href=${withQuery("#/fleet", { run: doc.run })} title="Their place in the fleet">${number(active.length || doc.nodes.length)}</a>`],
      own && [ended ? "ranks" : "ranks running", ended ? number(doc.ranks.length) : `${number(running)} / ${number(doc.ranks.length)}`],
      failed ? ["ranks failed", html`<span class="bad">${number(failed)}</span>`] : null,
      own && ["segments", number(doc.segments)],
      own && ["restarts", number(doc.restarts)],
      ["exit code", doc.exit_code ?? null],
    ]} />
    ${!ended && own && html`<div class="pad"><${Progress} value=${share} text=${words} /></div>`}
    ${(doc.text || doc.reason) && html`<p class="said"><${Icon} name=${shape(doc.state)} /> ${doc.text || doc.reason}</p>`}
    <${Waiting} doc=${doc} />
  </section>`;
}

/** What the run waits for. */
function Waiting({ doc }) {
  if (ENDED.has(doc.state)) return null;
  const waits = doc.standing?.text || doc.standing?.reason || doc.waits_for;
  const phase = doc.phases?.at(-1);
  const since = epoch(phase?.start);
  if (!waits && (!phase || phase.name === "train")) return null;
  const meaning = { queue: "waiting for nodes", connect: "agents are finding the supervisor", vet: "nodes are being vetted", setup: "set-up lines run", start: "ranks are starting", restart: "ranks are being started again", end: "ending" };
  return html`<p class="said wait"><${Icon} name="wait" /> <span>${waits || meaning[phase?.name] || phase?.name}${since !== null ? ` for ${duration(serverNow() - since)}` : ""}</span></p>`;
}

function Segments({ doc }) {
  const list = doc.segment_list || [];
  if (list.length < 2) return null;
  const columns = [
    { name: "Segment", right: true, of: (one) => one.number },
    { name: "Waited", short: true, of: (one) => duration(one.queue_s) },
    { name: "Started", short: true, of: (one) => html`<${Time} at=${one.started_at} />` },
    { name: "Held", short: true, of: (one) => duration(one.held_s) },
    { name: "Trained", short: true, of: (one) => duration(one.train_s) },
    { name: "Nodes", of: (one) => number(one.nodes?.length ?? 0) },
    { name: "Ended by", of: (one) => one.reason || "–" },
    { name: "Checkpoint", of: (one) => one.checkpoint || "–" },
  ];
  return html`<${Panel} title="Segments"><${Table} caption="Segments" columns=${columns} rows=${list} id=${(one) => one.number} /><//>`;
}

function Findings({ run, doc }) {
  const list = graveFirst(doc.findings || []);
  if (!list.length) return null;
  return html`<${Panel} title="Findings" aside=${html`<a href=${at("run", run, "findings")}>all ${list.length}</a>`}>
    <ul class="missing">${list.slice(0, 3).map((finding) => html`<${Finding} run=${run} finding=${finding} />`)}</ul>
  <//>`;
}

function About({ doc }) {
  const rows = [
    ["submitted", html`<${Time} at=${doc.submitted_at} seconds />`],
    ["started", html`<${Time} at=${doc.started_at} seconds />`],
    ["ended", doc.ended_at ? html`<${Time} at=${doc.ended_at} seconds />` : null],
    ["part of", doc.parent ? html`<a href=${at("run", doc.parent)}>${doc.parent}</a>` : null],
    ["job", doc.job],
    ["attempt", doc.attempt],
    ["began from", doc.began_from ? `${doc.began_from} (${doc.began_from_run === doc.run ? "its own" : doc.began_from_run ? `of run ${doc.began_from_run}` : "of an unknown run"})` : null],
    ["checkpoint", doc.checkpoint],
    ["environment", doc.environment ? [doc.environment.name, doc.environment.image, doc.environment.engine].filter(Boolean).join(" · ") : null],
    ["lost ranks", doc.ranks.some((rank) => rank.status === "failed") ? ranges(doc.ranks.filter((rank) => rank.status === "failed").map((rank) => rank.rank)) : null],
    ["folder", html`<span class="mono">${doc.folder}</span>`],
  ].filter(([, value]) => value !== null && value !== undefined && value !== "");
  return html`<${Panel} title="About this run"><dl class="facts">${rows.map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl><//>`;
}

/** What a system's page says on the overview. */
function Part({ file, ...given }) {
  const [Shown, setShown] = useState(null);
  useEffect(() => {
    import(`./${file}`).then((module) => setShown(() => module.Overview), console.error);
  }, [file]);
  return Shown && html`<${Shown} ...${given} />`;
}

export default function Run({ run, doc, newest, range, setRange, whole }) {
  const marks = marksOf(doc);
  const own = hasRanks(doc);
  const parts = ROUTES.filter(([, , , , folder, overview]) => overview && doc.folders?.includes(folder));
  const shared = { run, doc, range: range || whole, chosen: range, setRange, marks, live: !ENDED.has(doc.state) };
  return html`<h1 class="hidden">${run}</h1>
    <${Now} doc=${doc} newest=${newest} />
    ${whole && html`<${Panel} title="Timeline" aside=${html`<span class="soft">${many(doc.phases?.length || 0, "phase")}, ${many(doc.checkpoints?.length || 0, "checkpoint")}, ${many(doc.attempts?.length || 0, "attempt")}</span>`}>
      <${Timeline} ...${shared} /><//>`}
    <${Findings} run=${run} doc=${doc} />
    ${parts.map(([, file]) => html`<${Part} key=${file} file=${file} run=${run} doc=${doc} />`)}
    <${Children} doc=${doc} />
    ${own && html`<${Logged} ...${shared} elsewhere=${parts.length > 0} /><${Resources} ...${shared} />`}
    <div class="grid">${own && html`<${ScoreCard} run=${run} doc=${doc} />`}<${About} doc=${doc} /></div>
    ${doc.missing?.length > 0 && html`<${Panel} title="Not shown"><${Missing} missing=${doc.missing} /><//>`}
    <${Vetting} run=${run} doc=${doc} />
    <${Segments} doc=${doc} />`;
}
