/** The score in short, and what holds the job back. */

import { html, useEffect, useState } from "../vendor/htm-preact-3.1.1.js";
import { ofRun } from "../api.js";
import { number } from "../format.js";
import { useData, useEvery } from "../hooks.js";
import { at } from "../routes.js";
import { Empty, Figures, Icon, Loaded, Missing, Panel, Shares } from "../ui.js";

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

/** Read the score, again while it is computed and every half minute while the run goes on. */
export function useScore(run, doc) {
  const [waits, setWaits] = useState(0);
  const often = useEvery(30);
  const ended = ["finished", "failed", "cancelled"].includes(doc.state);
  const state = useData(ofRun(run, "score"), { tick: `${doc.state} ${waits} ${ended ? "" : often}` });
  const computing = state.data?.status === "computing";
  useEffect(() => {
    if (!computing) return undefined;
    const timer = setTimeout(() => setWaits((number) => number + 1), 2_000);
    return () => clearTimeout(timer);
  }, [computing, waits]);
  return state;
}

/** What there is instead of a score. */
export function NoScore({ answer }) {
  if (answer.missing?.length) return html`<${Missing} missing=${answer.missing} />`;
  return answer.status === "computing" ? html`<p class="said soft" role="status"><${Icon} name="wait" /> <span>The score is being computed…</span></p>` : html`<${Empty} title="There is no score." />`;
}

export function ScoreCard({ run, doc }) {
  const state = useScore(run, doc);
  return html`<${Panel} title="Score" aside=${html`<a href=${at("run", run, "score")}>details</a>`}>
    <${Loaded} state=${state} what="the score">${(answer) => {
      const { score } = answer;
      if (!score) return html`<${NoScore} answer=${answer} />`;
      const first = score.diagnosis?.[0];
      return html`<${Figures} items=${scoreFigures(score).slice(0, 4)} />
        <div class="pad"><${Shares} parts=${classParts(score.diagnosis)} label="Where the time went" /></div>
        ${first && html`<p class="pad"><span class="strong">${first.class}</span> ${percent(first.share)}: ${first.title}${first.advice?.[0] ? html`<br /><span class="soft">${first.advice[0]}</span>` : ""}</p>`}`;
    }}<//>
  <//>`;
}
