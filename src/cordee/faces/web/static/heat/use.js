/** Hooks of the heat map's page: the worker and what it knows, groups and metrics, the table's style sheet. */

import { useEffect, useMemo, useRef, useState } from "../vendor/htm-preact-3.1.1.js";
import { ofRun } from "../api.js";
import { useData, useHandler, useTick } from "../hooks.js";
import { live } from "../live.js";
import { described } from "./devices.js";
import { Engine } from "./engine.js";

const CELLS = 8_000_000;
const OVERVIEW_ROWS = 720;
const PACE_MS = 1_000;
const RETRY_MS = [1_000, 2_000, 4_000, 8_000, 15_000];
const FIRST = ["gpu_sm_ratio", "gpu_graphics_ratio", "gpu_utilization_ratio", "cpu_cores_ratio", "cpu_busy_ratio"];
const GROUPS = ["gpu", "rank", "node"];

/** Leave a time for measurements (`performance.getEntriesByName("heat-picture")`), the newest of each kind only. */
function mark(what) {
  performance.clearMarks(`heat-${what}`);
  performance.mark(`heat-${what}`);
}

/** Bring the heat map's style sheet in, once. */
export function useStyle() {
  useEffect(() => {
    if (document.getElementById("heat-style")) return;
    const link = Object.assign(document.createElement("link"), { id: "heat-style", rel: "stylesheet", href: "static/heat/heat.css" });
    document.head.append(link);
  }, []);
}

/** Return {state, groups, group, metric}: what there is to choose from, and what the address chose, or a good beginning. */
export function useMetrics(run, query) {
  const [asked, setAsked] = useState(0);
  const tick = useTick(asked ? null : run, ["samples"], 3_000);
  const state = useData(ofRun(run, "groups"), { tick });
  const groups = state.data?.groups || [];
  useEffect(() => {
    if (groups.length) setAsked(1);
  }, [groups.length]);
  const place = (name) => {
    const at = GROUPS.findIndex((of) => name.startsWith(of));
    return at < 0 ? GROUPS.length : at;
  };
  const ordered = [...groups].sort((one, other) => place(one.name) - place(other.name));
  const group = groups.find((of) => of.name === query.group) || ordered[0] || null;
  const metric =
    group?.metrics.find((of) => of.name === query.metric) ||
    FIRST.map((name) => group?.metrics.find((of) => of.name === name)).find(Boolean) ||
    group?.metrics[0] ||
    null;
  return { state, groups: ordered, group, metric };
}

/** Return the devices of a group, described; asked for again when `again` grows. */
export function useDevices(run, group, again) {
  const state = useData(group ? ofRun(run, "devices", { group }) : null, { tick: again });
  const devices = useMemo(() => (state.data ? described(group, state.data.devices) : null), [state.data, group]);
  return { state, devices };
}

/**
 * Run the worker for one metric: returns {engine, data, order, worst, counted, error, again}.
 *
 * onPicture(message), onData(message), onOrder(order): called outside of drawing, so that nothing is drawn twice.
 */
export function useEngine({ run, group, metric, devices, sort, follow, onPicture, onData, onOrder }) {
  const [data, setData] = useState(null);
  const [order, setOrder] = useState(null);
  const [worst, setWorst] = useState(null);
  const [counted, setCounted] = useState(null);
  const [error, setError] = useState(null);
  const [again, setAgain] = useState(0);
  const tries = useRef(0);
  const retry = useRef(0);
  const keep = useRef(null);
  keep.current = follow;
  const full = useRef(false);

  const arrange = (news) => {
    if (!news) return;
    mark("sorted");
    onOrder(news);
    setOrder(news);
  };
  const receive = useHandler((kind, message) => {
    if (kind === "picture") {
      mark(message.whole ? "picture" : "overview");
      onPicture(message);
    } else if (kind === "data" || kind === "detail") {
      tries.current = 0;
      if (kind === "data" && message.stage !== "overview") full.current = true;
      setError(null);
      onData(kind, message);
      arrange(message.order);
      if (kind === "data") setData(message);
    } else if (kind === "ordered") arrange(message.order);
    else if (kind === "worst") setWorst(message.list);
    else if (kind === "counted") setCounted(message);
    else if (kind === "changed") setAgain((number) => number + 1);
    else if (kind === "fault") fault(message.error);
  });
  const fault = (problem) => {
    setError(problem);
    if (full.current || ![0, 429, 503].includes(problem.status)) return;
    clearTimeout(retry.current);
    retry.current = setTimeout(() => setAgain((number) => number + 1), RETRY_MS[Math.min(tries.current, RETRY_MS.length - 1)]);
    tries.current += 1;
  };
  const engine = useRef(null);
  if (!engine.current) engine.current = new Engine(receive);
  useEffect(() => () => {
    clearTimeout(retry.current);
    engine.current.close();
    engine.current = null;
  }, []);

  const names = devices?.names;
  useEffect(() => {
    if (!names || !metric) return;
    full.current = false;
    setData(null);
    setOrder(null);
    setWorst(null);
    setCounted(null);
    const columns = Math.max(60, Math.min(600, Math.floor(CELLS / Math.max(1, names.length))));
    const url = new URL(ofRun(run, "heat", { group, metric }), document.baseURI).href;
    engine.current.send("sort", { sort });
    engine.current.open({ url, columns, rows: OVERVIEW_ROWS, devices: { names, keys: devices.keys, peers: devices.peers } });
  }, [run, group, metric, devices, again]);
  useEffect(() => engine.current.send("sort", { sort }), [sort.value, sort.by, sort.down]);
  useGrowth(run, group, metric, (newest) => {
    if (full.current) engine.current.send("more", { newest, keep: keep.current ? newest - 2 * keep.current : null });
  });
  return { engine: engine.current, data, order, worst, counted, error, again };
}

/** Call `more(newest)` when the group has newer samples, at most once a second, never while the tab is hidden. */
function useGrowth(run, group, metric, more) {
  const grow = useHandler(more);
  useEffect(() => {
    let timer = 0;
    let last = 0;
    let newest = null;
    const stop = live(run, (kind, data) => {
      if (kind !== "samples" || !(data?.[group] > (newest ?? -Infinity))) return;
      newest = data[group];
      if (timer) return;
      timer = setTimeout(() => {
        timer = 0;
        last = Date.now();
        if (!document.hidden) grow(newest);
      }, Math.max(0, last + PACE_MS - Date.now()));
    });
    return () => {
      clearTimeout(timer);
      stop();
    };
  }, [run, group, metric]);
}
