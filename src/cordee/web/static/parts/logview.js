/** Lines that ranks printed: followed, filtered, older ones on demand; only those on the screen are in the page. */

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/htm-preact-3.1.1.js";
import { get, ofRun } from "../api.js";
import { many, number, utc } from "../format.js";
import { useEvery } from "../hooks.js";
import { Choice, Empty, Fault, Icon, Loading, Search } from "../ui.js";

const MOST = 400_000;
const BATCH = 500;
const MORE = 5_000;
const SHORT = 4_000;
const ROOM = 20;
// eslint-disable-next-line no-control-regex
const ESCAPES = /\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|[\x00-\x08\x0b-\x1f]/g;

const clean = (text) => text.replace(ESCAPES, "");
const same = (one, other) => one.time === other.time && one.rank === other.rank && one.text === other.text;

/** Return where `news` goes on after `known`: the number of its lines that are known, -1 where nothing is. */
export function overlap(known, news) {
  if (!known.length) return 0;
  const last = known.at(-1);
  for (let at = news.length - 1; at >= 0; at -= 1) {
    if (!same(news[at], last)) continue;
    let back = 1;
    while (back < 30 && at - back >= 0 && known.length - 1 - back >= 0 && same(news[at - back], known[known.length - 1 - back])) back += 1;
    if (back === 30 || at - back < 0 || known.length - 1 - back < 0) return at + 1;
  }
  return -1;
}

/** Hold the newest lines of a rank or of all, ask for new ones while the run goes on, and for older ones when told. */
function useLines({ run, rank, stream, live }) {
  const [state, setState] = useState({ lines: [], before: null, error: null, loading: true, dropped: 0 });
  const key = `${run} ${rank} ${stream}`;
  const newest = useRef({ key: null, lines: [] });
  const tick = useEvery(2);
  const busy = useRef(false);
  const ask = (values) => get(ofRun(run, "logs", { rank, stream, ...values }));
  const keep = (lines, before, older) => {
    const dropped = Math.max(0, lines.length - MOST);
    const kept = dropped ? (older ? lines.slice(0, MOST) : lines.slice(dropped)) : lines;
    newest.current = { key, lines: kept };
    setState((old) => ({ lines: kept, before, error: null, loading: false, dropped: old.dropped + dropped }));
  };
  useEffect(() => {
    let here = true;
    const known = newest.current.key === key ? newest.current.lines : [];
    if (known.length && !live) return undefined;
    if (busy.current && known.length) return undefined;
    busy.current = true;
    (async () => {
      let found = await ask({ lines: BATCH });
      let at = overlap(known, found.lines);
      if (at < 0) {
        found = await ask({ lines: MORE });
        at = overlap(known, found.lines);
      }
      if (!here) return;
      if (at < 0 || !known.length) keep(found.lines, found.before ?? null, false);
      else if (at < found.lines.length) keep([...known, ...found.lines.slice(at)], state.before, false);
      else setState((old) => (old.error || old.loading ? { ...old, error: null, loading: false } : old));
    })()
      .catch((error) => here && setState((old) => ({ ...old, error, loading: false })))
      .finally(() => {
        busy.current = false;
      });
    return () => {
      here = false;
    };
  }, [key, live ? tick : 0]);
  const older = async () => {
    if (state.before === null || busy.current) return 0;
    busy.current = true;
    try {
      const found = await ask({ lines: MORE, before: state.before });
      keep([...found.lines, ...newest.current.lines], found.lines.length ? (found.before ?? null) : null, true);
      return found.lines.length;
    } catch (error) {
      setState((old) => ({ ...old, error }));
      return 0;
    } finally {
      busy.current = false;
    }
  };
  return [state, older];
}

function matcher(text) {
  if (!text) return null;
  const pattern = /^\/(.+)\/(i?)$/.exec(text);
  if (pattern) {
    try {
      const made = new RegExp(pattern[1], pattern[2]);
      return (line) => made.test(line.text);
    } catch {
      return () => false;
    }
  }
  const low = text.toLowerCase();
  return (line) => line.text.toLowerCase().includes(low);
}

function Line({ line, top, withRank, text }) {
  const shown = clean(line.text);
  const cut = shown.length > SHORT ? `${shown.slice(0, SHORT)} … ${number(shown.length - SHORT)} more characters` : shown;
  const at = text && !text.startsWith("/") ? cut.toLowerCase().indexOf(text.toLowerCase()) : -1;
  return html`<div class=${`line${line.stream === "stderr" ? " err" : ""}`} style=${{ top: `${top}px` }}>
    ${line.time ? html`<time title=${utc(line.time)}>${new Date(line.time * 1000).toLocaleTimeString("en-GB")}</time>` : ""}
    ${withRank ? html`<span class="of">${line.rank ?? ""}</span>` : ""}
    <span>${at < 0 ? cut : html`${cut.slice(0, at)}<mark>${cut.slice(at, at + text.length)}</mark>${cut.slice(at + text.length)}`}</span>
  </div>`;
}

/** The lines of `rank` (undefined: of all ranks). */
export function LogView({ run, rank, live, query, setQuery }) {
  const stream = query.stream || "";
  const text = query.text || "";
  const [state, older] = useLines({ run, rank, stream, live });
  const [follow, setFollow] = useState(true);
  const [view, setView] = useState({ top: 0, height: 600, line: 20 });
  const place = useRef(null);
  const added = useRef(0);
  const test = useMemo(() => matcher(text), [text]);
  const lines = useMemo(() => (test ? state.lines.filter(test) : state.lines), [state.lines, test]);
  const measure = () => {
    const box = place.current;
    if (!box) return;
    const line = parseFloat(getComputedStyle(box).lineHeight) || 20;
    setView((old) => (old.top === box.scrollTop && old.height === box.clientHeight && old.line === line ? old : { top: box.scrollTop, height: box.clientHeight, line }));
  };
  useLayoutEffect(() => {
    const box = place.current;
    if (!box) return;
    if (added.current) box.scrollTop += added.current * view.line;
    else if (follow) box.scrollTop = box.scrollHeight;
    added.current = 0;
    measure();
  }, [lines, follow]);
  useEffect(() => {
    addEventListener("resize", measure);
    return () => removeEventListener("resize", measure);
  }, []);
  const more = async () => {
    setFollow(false);
    added.current = await older();
  };
  const scrolled = () => {
    const box = place.current;
    const end = box.scrollHeight - box.scrollTop - box.clientHeight < 2 * view.line;
    if (end !== follow && (end || box.scrollTop < view.top)) setFollow(end);
    measure();
  };
  const from = Math.max(0, Math.floor(view.top / view.line) - ROOM);
  const to = Math.min(lines.length, Math.ceil((view.top + view.height) / view.line) + ROOM);
  return html`<div class="bar">
      <${Search} label="Lines with (or /pattern/)" value=${text} placeholder="error" onInput=${(value) => setQuery({ text: value })} />
      <${Choice} label="Stream" options=${[["", "both"], ["stdout", "output"], ["stderr", "errors"]]} value=${stream} onChange=${(value) => setQuery({ stream: value })} />
      <label class="check"><input type="checkbox" checked=${follow} onChange=${(event) => setFollow(event.target.checked)} /> follow</label>
      <button type="button" disabled=${state.before === null} onClick=${more}>Older lines</button>
      <span class="soft" role="status">${many(lines.length, "line")}${test ? ` of ${number(state.lines.length)}` : ""}${state.before === null && !state.loading ? ", from the beginning" : ""}</span>
    </div>
    ${state.error && html`<${Fault} error=${state.error} />`}
    ${state.dropped > 0 && html`<p class="note warn"><${Icon} name="warn" /><span>This page holds ${number(MOST)} lines; ${number(state.dropped)} are no longer in it. All are in <code>cordee logs</code>.</span></p>`}
    ${state.loading && !state.lines.length && html`<${Loading} what="lines" />`}
    ${!state.loading && !lines.length && !state.error && html`<${Empty} title=${state.lines.length ? "No line matches." : "Nothing was printed yet."} />`}
    ${lines.length > 0 && html`<div class="log" ref=${place} tabindex="0" role="log" aria-live="off" aria-label=${rank === undefined ? "Lines of all ranks" : `Lines of rank ${rank}`} onScroll=${scrolled}>
      <div class="all" style=${{ height: `${lines.length * view.line}px` }}>
        ${lines.slice(from, to).map((line, at) => html`<${Line} key=${from + at} line=${line} top=${(from + at) * view.line} withRank=${rank === undefined} text=${text} />`)}
      </div>
    </div>`}`;
}
