/** The runs below a run: steps, tests, and the jobs of a farm or a sweep. */

import { html } from "../vendor/htm-preact-3.1.1.js";
import { duration, epoch } from "../format.js";
import { useClock } from "../hooks.js";
import { serverNow } from "../live.js";
import { at } from "../routes.js";
import { Badge, Panel, Table, Time } from "../ui.js";

const TITLES = { step: "Steps", test: "Test", part: "Jobs" };
const NEVER_RAN = new Set(["waiting", "not started", "skipped"]);

const COLUMNS = [
  { name: "Name", of: (one) => (NEVER_RAN.has(one.state) ? one.name : html`<a href=${at("run", one.run)}>${one.name}</a>`) },
  { name: "State", short: true, of: (one) => html`<${Badge} state=${one.state} />` },
  { name: "After", roomy: true, of: (one) => one.after.join(", ") },
  { name: "Started", short: true, right: true, of: (one) => html`<${Time} at=${one.started_at} seconds />` },
  { name: "Lasted", short: true, right: true, of: (one) => (epoch(one.started_at) === null ? "" : duration((epoch(one.ended_at) ?? serverNow()) - epoch(one.started_at))) },
  { name: "Why", of: (one) => (one.state === "finished" ? "" : one.text) },
];

export function Children({ doc }) {
  useClock(1);
  if (!doc.children?.length) return null;
  const title = TITLES[doc.children.at(-1).kind] || "Runs below this one";
  return html`<${Panel} title=${title}><${Table} caption=${title} columns=${COLUMNS} rows=${doc.children} id=${(one) => one.name} /><//>`;
}
