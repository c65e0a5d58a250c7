/** The score in short, and what holds the job back. */

import { html } from "../vendor/htm-preact-3.1.1.js";
import { ofRun } from "../api.js";
import { number } from "../format.js";
import { useData } from "../hooks.js";
import { at } from "../routes.js";
import { Empty, Figures, Loaded, Missing, Panel, Shares } from "../ui.js";

const percent = (value) => (Number.isFinite(value) ? `${Math.round(100 * value)} %` : null);

/** The parts of a score as figures. */
export const scoreFigures = (score) => [
  ["of 100", score.score === null || score.score === undefined ? "unknown" : number(score.score, 3), "hardware saturation, not speed"],
  ["time in use", percent(score.time)],
  ["breadth", score.assumed?.includes("breadth") ? "not measured" : percent(score.breadth)],
  ["depth", score.assumed?.includes("depth") ? "not measured" : percent(score.depth)],
  ["balance", percent(score.balance)],
  ["coverage", percent(score.coverage)],
  ["confidence", percent(score.confidence)],
];

/** What the time went into, as parts of a whole. */
export const classParts = (diagnosis) => (diagnosis || []).map((one) => ({ name: one.class, share: one.share ?? 0, title: one.title }));

export function ScoreCard({ run, doc }) {
  const state = useData(ofRun(run, "score"), { tick: doc.state });
  return html`<${Panel} title="Score" aside=${html`<a href=${at("run", run, "score")}>details</a>`}>
    <${Loaded} state=${state} what="the score">${(score) => {
      if (score.missing?.length && (score.score === null || score.score === undefined)) return html`<${Missing} missing=${score.missing} />`;
      if (score.score === undefined) return html`<${Empty} title="There is no score yet." />`;
      const first = score.diagnosis?.[0];
      return html`<${Figures} items=${scoreFigures(score).slice(0, 4)} />
        <div class="pad"><${Shares} parts=${classParts(score.diagnosis)} label="Where the time went" /></div>
        ${first && html`<p class="pad"><span class="strong">${first.class}</span> ${percent(first.share)}: ${first.title}${first.advice?.[0] ? html`<br /><span class="soft">${first.advice[0]}</span>` : ""}</p>`}`;
    }}<//>
  <//>`;
}
