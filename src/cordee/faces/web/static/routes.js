/** The pages: which address shows which file. A page is one file in pages/ and one line here; systems bring theirs. */

/**
 * `[pattern, file, title, tab, folder, overview]`: a part of the pattern that begins with ":" is handed to the page by that name; pages
 * below `run/:run` stand in the frame of the run, with a tab where `tab` is true and, where a `folder` is named, the run has it;
 * with `tab`, pages of one word that are of no run are among the links at the top.
 * With `overview`, the page's file also exports `Overview`, which stands on the overview of runs that have the folder.
 * A page's file exports one component as default, which gets `{params, query, setQuery, run, doc, range, setRange}` (the last
 * four below a run only).
 */
export const ROUTES = [
  ["runs", "runs.js", "Runs"],
  ["compare", "compare.js", "Compare"],
  ["fleet", "fleet.js", "Fleet"],
  ["catalogue", "catalogue.js", "Catalogue"],
  ["run/:run", "run.js", "Overview", true],
  ["run/:run/heat", "heat.js", "Heat map", true],
  ["run/:run/bands", "bands.js", "Bands", true],
  ["run/:run/nodes", "nodes.js", "Nodes", true],
  ["run/:run/node/:node", "node.js", "Node"],
  ["run/:run/rank/:rank", "rank.js", "Rank"],
  ["run/:run/logs", "logs.js", "Logs", true],
  ["run/:run/findings", "findings.js", "Findings", true],
];

/** Add the pages that systems bring, as `api/pages` tells them. */
export function addPages(pages) {
  for (const { pattern, file, title, tab, folder, overview } of pages) ROUTES.push([pattern, file, title, tab, folder, overview]);
}

/** Return `{file, title, params, query}` of an address such as "#/run/a/heat?group=gpu"; null where there is no such page. */
export function matched(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  let parts;
  try {
    parts = (path || "runs").split("/").map(decodeURIComponent);
  } catch {
    return null;
  }
  for (const [pattern, file, title] of ROUTES) {
    const names = pattern.split("/");
    if (names.length !== parts.length) continue;
    if (!names.every((name, at) => (name.startsWith(":") ? parts[at] !== "" : name === parts[at]))) continue;
    const params = {};
    names.forEach((name, at) => name.startsWith(":") && (params[name.slice(1)] = parts[at]));
    return { file, title, params, query: Object.fromEntries(new URLSearchParams(query)), path: parts.join("/") };
  }
  return null;
}

/** Return the address of a page: `at("run", id, "rank", 3)` is "#/run/id/rank/3". */
export const at = (...parts) => `#/${parts.map(encodeURIComponent).join("/")}`;

/** Return the address with a query; undefined, null and empty values are left out. */
export function withQuery(address, values) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value !== undefined && value !== null && value !== "") query.set(name, value);
  }
  const text = query.toString();
  return text ? `${address}?${text}` : address;
}
