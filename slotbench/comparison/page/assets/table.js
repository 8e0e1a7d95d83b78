// The head of the page, and the table: rows that can be sorted, opened into their runs, and switched on and off.

const MOST_SCORES = 6;
const ARROWS = { true: "↑", false: "↓", null: "" };

const placesOf = new Map(
  page.metrics.map(({ name }) => [
    name,
    decimals(page.rows.filter((row) => name in row.cells).map((row) => row.cells[name].mean)),
  ]),
);

const cellOf = (kind) => (content) => element("td", { class: kind }, content);
const number = cellOf("number");

// of a grid with a protocol
const protocolColumns = [
  {
    id: "success",
    title: "success",
    hint: page.metrics.length ? `seeds that beat the best baseline of ${page.metrics[0].label}` : "",
    isFirstDescending: true,
    value: (row) => (row.success ? row.success[0] / row.success[1] : undefined),
    cell: (row) => number(row.success ? `${row.success[0]}/${row.success[1]}` : "–"),
  },
  {
    id: "steps",
    title: "steps",
    hint: "optimiser steps of a run",
    value: (row) => row.steps ?? undefined,
    cell: (row) => number(row.steps === null ? "–" : row.steps.toLocaleString("en")),
  },
  {
    id: "minutes",
    title: "minutes",
    hint: "of a run, median over the seeds",
    value: (row) => row.minutes ?? undefined,
    cell: (row) => number(row.minutes === null ? "–" : fixed(row.minutes, row.minutes < 10 ? 1 : 0)),
  },
];

// scores stand beside the row's name; settings, which may be long, come last and are asked for
const columns = [
  {
    id: "runs",
    title: grouping ? "runs" : "seeds",
    hint: grouping ? "runs with this setting" : "runs that differ in nothing but their seed",
    value: (row) => row.runs.length,
  },
  ...page.metrics.map((metric) => ({
    id: `metric ${metric.name}`,
    title: metric.label,
    hint: metric.name,
    metric,
    isFirstDescending: metric.higher !== false,
    value: (row) => row.cells[metric.name]?.mean,
    cell: (row) => scoreCell(row, metric),
  })),
  ...protocolColumns.filter((column) => page.rows.some((row) => column.value(row) !== undefined)),
  {
    id: "parameters",
    title: "parameters",
    hint: "trainable ones",
    value: (row) => row.parameters ?? undefined,
    cell: (row) => number(row.parameters === null ? "–" : row.parameters.toLocaleString("en")),
  },
  {
    id: "seconds",
    title: "time per step",
    hint: "median over the runs",
    value: (row) => row.seconds_per_step ?? undefined,
    cell: (row) => number(row.seconds_per_step === null ? "–" : duration(row.seconds_per_step)),
  },
  ...page.keys.map(({ key, label }) => ({
    id: `key ${key}`,
    title: label,
    hint: key,
    isText: !page.rows.every((row) => row.settings[key] === undefined || typeof row.settings[key] === "number"),
    value: (row) => row.settings[key],
    cell: (row) => {
      const value = text(row.settings[key]);
      return element("td", { class: typeof row.settings[key] === "number" ? "number" : "setting", title: value }, value);
    },
  })),
];
const byLabel = { id: "label", title: "row", isText: true, value: (row) => row.label };

const table = {
  sort: null,
  isDescending: false,
  open: new Set(),
  intervals: false,
  baselines: true,
  columns: new Set(
    columns
      .filter((column) => !column.id.startsWith("key ") && page.rows.some((row) => column.value(row) !== undefined))
      .map((column) => column.id)
      .filter((id, index) => !id.startsWith("metric ") || index <= MOST_SCORES),
  ),
};

function scoreCell(row, metric) {
  const cell = row.cells[metric.name];
  if (!cell) return element("td", { class: "number quiet" }, row.diverged ? "diverged" : "–");
  const places = placesOf.get(metric.name);
  const interval = cell.low === null ? "" : `${fixed(cell.low, places)} to ${fixed(cell.high, places)}`;
  const isPart = cell.values.length < row.runs.length;
  const node = element(
    "td",
    { class: `number score${cell.best ? " best" : ""}` },
    element("span", { class: "mean" }, fixed(cell.mean, places)),
    cell.std === null ? null : element("span", { class: "spread" }, ` ± ${fixed(cell.std, places)}`),
    isPart ? element("span", { class: "spread" }, ` (${cell.values.length})`) : null,
    cell.best ? element("span", { class: "aside" }, " best of its column") : null,
    table.intervals && interval ? element("span", { class: "interval" }, interval) : null,
  );
  node.addEventListener("pointermove", (event) => {
    const beaten = baselinesAbove(cell, metric);
    const spread = cell.std === null ? "" : ` ± ${short(cell.std, 3)}, n = ${cell.values.length}`;
    showTip(
      event.clientX,
      event.clientY,
      element("strong", {}, row.label),
      element("div", { class: "quiet" }, metric.label),
      element("div", {}, short(cell.mean, 5) + spread),
      interval ? element("div", {}, `95 % interval (t) of the mean: ${interval}`) : null,
      cell.values.length > 1 ? element("div", {}, `seeds: ${cell.values.map((one) => short(one)).join(", ")}`) : null,
      beaten.length ? element("div", { class: "warn" }, `no better than ${beaten.join(", ")}`) : null,
    );
  });
  node.addEventListener("pointerleave", hideTip);
  return node;
}

function baselinesAbove(cell, metric) {
  if (metric.higher === null) return [];
  const sign = metric.higher ? 1 : -1;
  return Object.entries(metric.baselines)
    .filter(([, baseline]) => sign * Number(baseline) >= sign * Number(cell.mean))
    .map(([name, baseline]) => `“${name}” (${short(baseline)})`);
}

/** Rows in the order that is asked for; those without a value last, either way. */
function sorted(rows) {
  const column = [byLabel, ...columns].find(({ id }) => id === table.sort);
  if (!column) return rows;
  const sign = table.isDescending ? -1 : 1;
  const lacks = (value) => value === undefined || (!column.isText && Number.isNaN(Number(value)));
  return [...rows].sort((left, right) => {
    const [a, b] = [column.value(page.rows[left]), column.value(page.rows[right])];
    if (lacks(a) || lacks(b)) return lacks(a) - lacks(b) || left - right;
    const order = column.isText ? text(a).localeCompare(text(b), "en", { numeric: true }) : Number(a) - Number(b);
    return sign * order || left - right;
  });
}

function sortBy(column) {
  if (table.sort === column.id) table.isDescending = !table.isDescending;
  else [table.sort, table.isDescending] = [column.id, Boolean(column.isFirstDescending)];
  changed();
}

function heading(column) {
  const order = table.sort !== column.id ? "none" : table.isDescending ? "descending" : "ascending";
  const arrow = { none: "", descending: "\u00a0▼", ascending: "\u00a0▲" }[order];
  const better = column.metric ? ARROWS[column.metric.higher] : "";
  const hint = better ? `${column.hint}; ${column.metric.higher ? "higher" : "lower"} is better` : column.hint;
  return element(
    "th",
    { scope: "col", "aria-sort": order, "data-column": column.id, class: column.isText ? null : "number" },
    element(
      "button",
      { type: "button", id: `sort ${column.id}`, title: hint, onclick: () => sortBy(column) },
      column.title,
      better ? element("span", { "aria-hidden": "true" }, `\u00a0${better}`) : null,
      element("span", { class: "order", "aria-hidden": "true" }, arrow),
    ),
  );
}

function badges(row) {
  const counts = new Map();
  for (const index of row.runs) counts.set(page.runs[index].state, (counts.get(page.runs[index].state) ?? 0) + 1);
  counts.delete("finished");
  return [...counts].map(([name, count]) => badge(name, row.runs.length === 1 ? name : `${count} ${name}`));
}

function badge(name, label = name) {
  const kind = ["failed", "killed", "diverged"].includes(name) ? "bad" : name === "running" ? "busy" : "odd";
  return element("span", { class: `badge ${kind}` }, label);
}

function tableRow(index, shownColumns) {
  const row = page.rows[index];
  const isOn = !state.hidden.has(index);
  const isOpen = table.open.has(index);
  const open = {
    type: "button",
    id: `open-${index}`,
    class: "open",
    "aria-expanded": String(isOpen),
    "aria-label": `Settings and runs of ${row.label}`,
    onclick: () => {
      if (!table.open.delete(index)) table.open.add(index);
      keepFocus(drawTable);
    },
  };
  const eye = {
    type: "button",
    id: `eye-${index}`,
    class: "eye",
    "aria-pressed": String(isOn),
    "aria-label": `Draw ${row.label}`,
    title: "Show or hide in the plots; with Shift: this one only",
    onclick: (event) => toggle(index, event.shiftKey),
  };
  const flip = (event) => {
    if (!event.target.closest("button") && getSelection().isCollapsed) toggle(index, event.shiftKey);
  };
  return element(
    "tr",
    { "data-row": index, class: isOn ? null : "off", onclick: flip },
    element(
      "th",
      { scope: "row" },
      element(
        "span",
        { class: "first" },
        element("button", open, isOpen ? "▾" : "▸"),
        element("button", eye, swatch(index)),
        element("span", { class: "name", title: row.label }, row.label),
        ...badges(row),
      ),
    ),
    ...shownColumns.map((column) => (column.cell ? column.cell(row) : number(String(column.value(row))))),
  );
}

/** What a click on a row unfolds: the settings in which it differs, and its runs. */
function details(row, shownColumns) {
  const settings = page.keys.filter(({ key }) => key in row.settings);
  const list = settings.map(({ key }) => element("div", {}, `${key}: `, element("code", {}, text(row.settings[key]))));
  const unfolded = element("td", { colspan: shownColumns.length + 1 }, ...list);
  return [
    list.length ? element("tr", { class: "settings" }, unfolded) : null,
    ...row.runs.map((run, place) => runRow(row, page.runs[run], place, shownColumns)),
  ].filter(Boolean);
}

function runRow(row, run, place, shownColumns) {
  const total = run.total_steps > run.step ? ` of ${run.total_steps.toLocaleString("en")}` : "";
  const step = run.step === undefined ? "" : `step ${run.step.toLocaleString("en")}${total}`;
  const facts = [step, duration(run.seconds), run.device].filter(Boolean).join(" · ");
  const cells = shownColumns.map(({ id, metric }) => {
    const value = metric ? row.cells[metric.name]?.by_run[place] : undefined;
    if (value !== null && value !== undefined) return number(fixed(value, placesOf.get(metric.name)));
    return number(id === "seconds" ? duration(run.seconds_per_step) : "");
  });
  return element(
    "tr",
    { class: "run" },
    element(
      "th",
      { scope: "row" },
      element(
        "span",
        { class: "first" },
        run.seed === null ? run.name : `seed ${text(run.seed)}`,
        run.state === "finished" ? "" : badge(run.state),
      ),
      element("span", { class: "facts", title: run.command }, facts),
      element("span", { class: "facts", title: run.source }, run.source),
      run.error ? element("span", { class: "facts warn" }, run.error) : null,
    ),
    ...cells,
  );
}

/** The scores of baselines, or of oracles, under a heading; null if there are none. */
function besideRows(kind, title, shownColumns) {
  const names = [...new Set(page.metrics.flatMap((metric) => Object.keys(metric[kind])))];
  if (!names.length || !table.baselines) return null;
  const cells = (name) =>
    shownColumns.map(({ metric }) => {
      const value = metric?.[kind][name];
      return number(value === undefined || value === null ? "" : fixed(value, placesOf.get(metric.name)));
    });
  const first = (content) => element("span", { class: "first" }, content);
  return element(
    "tbody",
    { class: "baselines" },
    element("tr", {}, element("th", { scope: "rowgroup", colspan: shownColumns.length + 1 }, first(title))),
    ...names.map((name) =>
      element(
        "tr",
        {},
        element("th", { scope: "row" }, first(element("span", { class: "name" }, name))),
        ...cells(name),
      ),
    ),
  );
}

function drawTable() {
  hideTip();
  const shownColumns = columns.filter((column) => table.columns.has(column.id));
  const rows = sorted(filtered());
  const body = element("tbody", { class: "rows" });
  for (const index of rows) {
    body.append(tableRow(index, shownColumns));
    if (table.open.has(index)) body.append(...details(page.rows[index], shownColumns));
  }
  if (!rows.length) {
    const why = page.rows.length ? "No row has all these words." : "No runs.";
    body.append(element("tr", {}, element("td", { colspan: shownColumns.length + 1, class: "quiet" }, why)));
  }
  const scrolled = byId("table").scrollLeft;
  const parts = [
    element("thead", {}, element("tr", {}, heading(byLabel), ...shownColumns.map(heading))),
    body,
    besideRows("baselines", "Baselines: trivial predictions, nothing is learned", shownColumns),
    besideRows("oracles", "Oracles: they know the simulator, and are no baselines", shownColumns),
  ];
  byId("table").replaceChildren(element("table", {}, ...parts));
  byId("table").scrollLeft = scrolled;
  const drawn = `${shown().length} of ${plural(page.rows.length, "row")} drawn`;
  byId("shown").textContent = rows.length < page.rows.length ? `${drawn}, ${rows.length} match` : drawn;
}

function startTable() {
  const named = ({ id, title, hint, metric }) => (metric ? `${title} (${hint})` : id.startsWith("key ") ? hint : title);
  const options = columns.map((column) => [column.id, named(column)]);
  byId("table-controls").append(menu("Columns", "columns", options, table.columns, changed));
  const hasReferences = page.metrics.some((metric) => Object.keys(references(metric)).length);
  controls("table", table, drawTable, [
    ["intervals", "intervals", "95 % interval (t) of the mean"],
    hasReferences && ["baselines", "baselines", ""],
  ]);
  startGroupings();
  const hasSpread = page.rows.some((row) => Object.values(row.cells).some((cell) => cell.std !== null));
  byId("table-legend").textContent = [
    hasSpread ? `Mean ± standard deviation over the ${grouping ? "runs" : "seeds"}.` : "",
    page.rows.some((row) => Object.values(row.cells).some((cell) => cell.best))
      ? "Bold on colour: better than every other row of its column (Welch’s t-tests, two-sided, p < 0.05 divided by " +
        "the number of other rows: Bonferroni)."
      : "",
    "Click a heading to sort, a row to show or hide it in the plots, with Shift to draw only it, ▸ to see its settings " +
      "and runs.",
  ].join(" ");
  const [order] = keep("sort", () => [`${table.isDescending ? "-" : ""}${table.sort ?? ""}`]);
  if (order) [table.sort, table.isDescending] = [order.replace(/^-/, ""), order.startsWith("-")];
  [state.filter = ""] = keep("filter", () => [state.filter]);
  byId("filter").value = state.filter;
  const hidden = keep("hide", () => [...state.hidden].map((row) => page.rows[row].label));
  state.hidden = new Set([...page.rows.keys()].filter((row) => hidden.includes(page.rows[row].label)));
  byId("filter").addEventListener("input", () => {
    state.filter = byId("filter").value;
    changed();
  });
  const all = (change) => () => {
    for (const row of filtered()) change(row);
    changed();
  };
  byId("show-all").addEventListener("click", all((row) => state.hidden.delete(row)));
  byId("show-none").addEventListener("click", all((row) => state.hidden.add(row)));
  onChange(drawTable);
}

/** A choice of what makes a row: all settings, or one. What is known of rows is worked out once, so the page reloads. */
function startGroupings() {
  if (!page.groupings.length) return;
  let by = grouping?.key ?? "";
  kept.set("by", () => (by ? [by] : []));
  const options = [["", "all settings"], ...page.groupings.map(({ key, label }) => [key, label])];
  const field = select("rows by", "table-by", options, by, (key) => {
    by = key;
    // what was asked of the other rows does not hold for these
    for (const name of ["hide", "settings-left", "settings-right"]) kept.set(name, () => []);
    writeLink();
    location.reload();
  });
  byId("table-controls").append(field);
}

function startHeader() {
  byId("title").textContent = page.title;
  const made = new Date(page.made).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
  const seeds = Math.max(0, ...page.rows.map((row) => row.runs.length));
  byId("facts").textContent = [
    `${plural(page.runs.length, "run")} in ${plural(page.rows.length, "row")}`,
    seeds > 1 ? `up to ${seeds} ${grouping ? "runs" : "seeds"} a row` : "",
    `made ${made}`,
    `slotbench ${page.version}`,
  ]
    .filter(Boolean)
    .join(" · ");
  if (page.command) byId("command").append(element("code", { class: "command" }, page.command));
  if (!page.notes.length) return;
  const list = element("ul", {}, ...page.notes.map((note) => element("li", {}, note)));
  const folded = element("details", {}, element("summary", {}, plural(page.notes.length, "note")), list);
  byId("notes").append(page.notes.length < 3 && innerWidth > 700 ? list : folded);
}
