/** The page of a window. */
import { html, useEffect, useState } from "../../vendor/htm-preact-3.1.1.js";
import { get } from "../../api.js";

export default function Window({ run }) {
  const [window, setWindow] = useState(null);
  useEffect(() => void get(`api/runs/${encodeURIComponent(run)}/window`).then(setWindow), [run]);
  return html`<h1>Window</h1><p id="window">${window && `open for ${window.open_s} s`}</p>`;
}
