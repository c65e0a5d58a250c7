/** Lines that ranks printed: followed, filtered, older ones on demand; only those on the screen are in the page. */

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/htm-preact-3.1.1.js";
import { get, ofRun } from "../api.js";
import { many, number, utc } from "../format.js";
import { useEvery } from "../hooks.js";
import { Choice, Empty, Fault, Icon, Loading, Search } from "../ui.js";

const MOST = 400_000;
const FIRST = 1_000;
const MORE = 5_000;
const LATE_S = 3;
const SHORT = 4_000;
const ROOM = 20;
const ESCAPES = /\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|[\x00-\x08\x0b-\x1f]/g;

const clean = (text) => text.replace(ESCAPES, "");
/** Return how many of the `lines` were finished by `time`. */
function until(lines, time) {
  let at = lines.length;
  while (at > 0 && lines[at - 1].time > time) at -= 1;
  return at;
}

/**
 * Return the lines held after `news`, which is what was finished after `since`; what is held of that time is replaced:
 * ranks deliver late, and the server's order counts. A page that is full leaves a gap, which is said.
 */
export function joined(held, news, since) {
  const kept = held.slice(0, until(held, since));
  if (news.length >= MORE && kept.length) kept.push({ time: news[0].time, gap: true, text: "lines are left out here: they came faster than this page asked" });
  return kept.concat(news);
}

/** Hold the newest lines of a rank or of all, ask for new ones while the run goes on, and for older ones when told. */
function useLines({ run, rank, stream, live }) {
  const [state, setState] = useState({ lines: [], before: null, error: null, loading: true, dropped: 0 });
  const key = `${run} ${rank} ${stream}`;
  const held = useRef({ key: null, lines: [], before: null });
  const busy = useRef(false);
  const tick = useEvery(2);
  const ask = (values) => get(ofRun(run, "logs", { rank, stream, ...values }));
  const keep = (lines, before, older) => {
    const dropped = Math.max(0, lines.length - MOST);
    const kept = dropped ? (older ? lines.slice(0, MOST) : lines.slice(dropped)) : lines;
    held.current = { key, lines: kept, before };
    setState((old) => ({ lines: kept, before, error: null, loading: false, dropped: old.dropped + dropped }));
  };
  useEffect(() => {
    const known = held.current.key === key;
    if (known && (!live || busy.current)) return undefined;
    let here = true;
    busy.current = true;
    const read = async () => {
      const last = held.current.lines.at(-1)?.time;
      if (!known || last === undefined) {
        const found = await ask({ lines: FIRST });
        if (here) keep(found.lines, found.before ?? null, false);
        return;
      }
      const since = last - LATE_S;
      const found = await ask({ after: since, lines: MORE });
      const lines = joined(held.current.lines, found.lines, since);
      if (here && (lines.length !== held.current.lines.length || lines.at(-1)?.text !== held.current.lines.at(-1)?.text)) keep(lines, held.current.before, false);
      else if (here) setState((old) => (old.error ? { ...old, error: null } : old));
    };
    read()
      .catch((error) => here && setState((old) => ({ ...old, error, loading: false })))
      .finally(() => {
        busy.current = false;
      });
    return () => {
      here = false;
    };
  }, [key, live ? tick : 0]);
  const older = async () => {
    const { before } = held.current;
    if (before === null || busy.current) return 0;
    busy.current = true;
    try {
      const found = await ask({ lines: MORE, before });
      keep([...found.lines, ...held.current.lines], found.lines.length ? (found.before ?? null) : null, true);
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
  return html`<div class=${`line${line.stream === "err" ? " err" : line.stream === "own" ? " own" : ""}`} style=${{ top: `${top}px` }}>
    ${line.gap ? html`<span class="warn">…</span>` : ""}${line.time ? html`<time title=${utc(line.time)}>${new Date(line.time * 1000).toLocaleTimeString("en-GB")}</time>` : ""}
    ${withRank ? html`<span class="of" title=${line.node}>${line.rank >= 0 ? line.rank : (line.node ?? "")}</span>` : ""}
    <span>${at < 0 ? cut : html`${cut.slice(0, at)}<mark>${cut.slice(at, at + text.length)}</mark>${cut.slice(at + text.length)}`}</span>
  </div>`;
}

/** The lines of `rank` (undefined: of all ranks). */
export function LogView({ run, rank, live, query, setQuery, first }) {
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
    if (!box) return; // it scrolled, and is gone before it was told so
    const end = box.scrollHeight - box.scrollTop - box.clientHeight < 2 * view.line;
    if (end !== follow && (end || box.scrollTop < view.top)) setFollow(end);
    measure();
  };
  const from = Math.max(0, Math.floor(view.top / view.line) - ROOM);
  const to = Math.min(lines.length, Math.ceil((view.top + view.height) / view.line) + ROOM);
  return html`<div class="bar">
      ${first}
      <${Search} label="Lines with (or /pattern/)" value=${text} placeholder="error" onInput=${(value) => setQuery({ text: value })} />
      <${Choice} label="Stream" options=${[["", "all"], ["out", "output"], ["err", "errors"], ["own", "Cordée"]]} value=${stream} onChange=${(value) => setQuery({ stream: value })} />
      <label class="check"><input type="checkbox" checked=${follow} onChange=${(event) => setFollow(event.target.checked)} /> follow</label>
      <button type="button" disabled=${state.before === null} onClick=${more}>Older lines</button>
      <span class="soft small lone" role="status">${many(lines.length, "line")}${test ? ` of ${number(state.lines.length)}` : ""}${state.before === null && !state.loading ? ", from the beginning" : ""}</span>
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
