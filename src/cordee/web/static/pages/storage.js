/** What storage did: rates, and checkpoint writes drawn over throughput, so that a dent is seen. */

import { html } from "../vendor/htm-preact-3.1.1.js";
import { ofRun } from "../api.js";
import { useData, useTick } from "../hooks.js";
import { Loaded, Missing } from "../ui.js";

export default function Storage({ run }) {
  const tick = useTick(run, ["samples", "state"], 3_000);
  const state = useData(ofRun(run, "storage"), { tick });
  return html`<h1>Storage</h1><${Loaded} state=${state} what="storage">${(found) => html`<${Missing} missing=${found.missing} />`}<//>`;
}
