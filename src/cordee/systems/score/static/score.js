/** How well the hardware was used, and what held the job back. */

import { html } from "../../vendor/htm-preact-3.1.1.js";
import { number, quantity } from "../../format.js";
import { at } from "../../routes.js";
import { NoScore, classParts, scoreFigures, useScore } from "../../parts/score_card.js";
import { Figures, Icon, Loaded, Panel, Shares, Table, Time, Words, sorted } from "../../ui.js";

const percent = (value) => (Number.isFinite(value) ? `${number(100 * value, 3)} %` : "–");
const MEANS = { graphics: "in use", sm: "SMs", tensor: "tensor", dram: "memory", SOL: "busiest part" };

function columns(run, devices) {
  const means = Object.keys(MEANS).filter((name) => devices.some((device) => Number.isFinite(device.means?.[name])));
  return [
    { name: "Device", sort: (one) => one.device, of: (one) => html`<span class="name">${one.device}</span>${one.model ? html` <span class="soft">${one.model}</span>` : ""}` },
    { name: "Node", sort: (one) => one.node, of: (one) => html`<a href=${at("run", run, "node", one.node)}>${one.node}</a>` },
    { name: "Ranks", of: (one) => (one.ranks || []).map((rank, place) => html`${place ? ", " : ""}<a href=${at("run", run, "rank", String(rank))}>${rank}</a>`) },
    { name: "Score", right: true, sort: (one) => one.score, of: (one) => number(one.score, 3) },
    ...means.map((name) => ({ name: MEANS[name], right: true, sort: (one) => one.means[name], of: (one) => percent(one.means[name]) })),
    { name: "Coverage", right: true, sort: (one) => one.coverage, of: (one) => percent(one.coverage) },
    { name: "Classes", of: (one) => html`<${Shares} label=${one.device} parts=${Object.entries(one.classes || {}).map(([name, share]) => ({ name, share }))} />` },
  ];
}

function Diagnosis({ diagnosis }) {
  return html`<${Panel} title="What held it back">
    <${Shares} parts=${classParts(diagnosis)} label="Where the time went" />
    <ol class="stack pad">${diagnosis.map((one, place) => html`<li class="logged">
      <h3><i class=${`key c${place % 8}`} aria-hidden="true"></i>${one.class}, ${percent(one.share)} of the time: ${one.title}</h3>
      ${(one.evidence || []).map((text) => html`<p class="soft small"><${Words} text=${text} /></p>`)}
      ${(one.advice || []).length > 0 && html`<ul>${one.advice.map((text) => html`<li class="said"><${Icon} name="right" /><span><${Words} text=${text} /></span></li>`)}</ul>`}
      ${Number.isFinite(one.gain) ? html`<p class="soft">Removing this could make the job up to ${number(one.gain, 3)}x faster.</p>` : ""}
    </li>`)}</ol>
  <//>`;
}

export default function Score({ run, doc, query, setQuery }) {
  const state = useScore(run, doc);
  const sort = { by: query.sort || "Score", down: query.order === "down" };
  return html`<div class="title"><h1>Score</h1>${state.data?.computed_at && html`<p class="soft">computed <${Time} at=${state.data.computed_at} since /></p>`}</div>
    <${Loaded} state=${state} what="the score">${(answer) => {
      const { score } = answer;
      if (!score) return html`<${NoScore} answer=${answer} />`;
      const devices = score.devices || [];
      const shape = columns(run, devices);
      return html`<section class="panel" aria-label="The score"><${Figures} items=${scoreFigures(score)} />
          <p class="soft pad">It says how much of the hardware was used, measured by ${score.source}: ${score.measures || "hardware saturation, not speed"}.</p>
          ${(score.confidence_reasons || []).map((text) => html`<p class="said ask"><${Icon} name="ask" /><span>${text}</span></p>`)}
        </section>
        ${score.diagnosis?.length > 0 && html`<${Diagnosis} diagnosis=${score.diagnosis} />`}
        ${score.flags?.length > 0 && html`<${Panel} title="Flags"><ul>${score.flags.map((flag) => html`<li class="said"><${Icon} name="warn" /><span>${typeof flag === "string" ? flag : flag.text || flag.title || quantity(flag)}</span></li>`)}</ul><//>`}
        <${Panel} title="Devices"><${Table} caption="Score of each device" columns=${shape} rows=${sorted(devices, shape, sort).slice(0, 500)} id=${(one) => one.device} sort=${sort}
          onSort=${(next) => setQuery({ sort: next.by, order: next.down ? "down" : null })} rowProps=${(one) => ({ "data-row": one.device })} />
          ${devices.length > 500 && html`<p class="soft pad">500 of ${number(devices.length)} are shown: sort to see others first. <code>cordee score</code> lists all.</p>`}<//>`;
    }}<//>`;
}
