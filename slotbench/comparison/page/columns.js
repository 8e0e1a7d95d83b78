// What the columns of the table are, and what stands in their cells.

const ARROWS = { true: "↑", false: "↓", null: "" };

const placesOf = new Map(
  page.metrics.map((metric) => [
    metric.name,
    decimals(page.rows.filter((row) => metric.name in row.cells).map((row) => row.cells[metric.name].mean)),
  ]),
);

const columns = [
  ...page.keys.map(({ key, label }) => ({
    id: `key ${key}`,
    title: label,
    hint: key,
    isNumber: page.rows.every((row) => row.settings[key] === undefined || typeof row.settings[key] === "number"),
    value: (row) => row.settings[key],
    cell: (row) => settingCell(row.settings[key]),
  })),
  ...page.metrics.map((metric) => ({
    id: `metric ${metric.name}`,
    title: metric.label,
    hint: metric.name,
    metric,
    isNumber: true,
    isFirstDescending: metric.higher !== false,
    value: (row) => row.cells[metric.name]?.mean,
    cell: (row) => metricCell(row, metric),
  })),
  {
    id: "parameters",
    title: "parameters",
    hint: "trainable ones",
    isNumber: true,
    value: (row) => row.parameters,
    cell: (row) =>
      element("td", { class: "number" }, row.parameters === null ? "–" : row.parameters.toLocaleString("en")),
  },
  {
    id: "seconds",
    title: "time per step",
    hint: "median over the runs",
    isNumber: true,
    value: (row) => row.seconds_per_step,
    cell: (row) =>
      element("td", { class: "number" }, row.seconds_per_step === null ? "–" : duration(row.seconds_per_step)),
  },
  {
    id: "runs",
    title: "runs",
    hint: "runs that differ in nothing but their seed",
    isNumber: true,
    value: (row) => row.runs.length,
    cell: (row) => element("td", { class: "number" }, String(row.runs.length)),
  },
];

function settingCell(value) {
  const isLong = typeof value === "string" || typeof value === "object";
  return element(
    "td",
    { class: `setting${typeof value === "number" ? " number" : ""}`, title: isLong ? text(value) : null },
    text(value),
  );
}

function metricCell(row, metric) {
  const cell = row.cells[metric.name];
  if (!cell) return element("td", { class: "number quiet" }, "–");
  const places = placesOf.get(metric.name);
  const spread = cell.std === null ? "" : ` ± ${fixed(cell.std, places)}`;
  const interval = cell.low === null ? "" : `${fixed(cell.low, places)} to ${fixed(cell.high, places)}`;
  const node = element(
    "td",
    { class: `number score${cell.best ? " best" : ""}` },
    element("span", { class: "mean" }, fixed(cell.mean, places)),
    element("span", { class: "spread" }, spread),
    cell.std === null ? null : element("span", { class: "count" }, ` (${cell.values.length})`),
    cell.best ? element("span", { class: "aside" }, " best of its column") : null,
    table.withIntervals && interval ? element("span", { class: "interval" }, interval) : null,
  );
  node.addEventListener("pointermove", (event) => {
    const beaten = floorsAbove(cell, metric);
    showTip(
      event.clientX,
      event.clientY,
      element("strong", {}, row.label),
      element("div", { class: "quiet" }, metric.label),
      element(
        "div",
        {},
        `${short(cell.mean, 5)}${cell.std === null ? "" : ` ± ${short(cell.std, 3)}, n = ${cell.values.length}`}`,
      ),
      interval ? element("div", {}, `95 % interval (t) of the mean: ${interval}`) : null,
      cell.values.length > 1
        ? element("div", {}, `seeds: ${cell.values.map((value) => short(value)).join(", ")}`)
        : null,
      beaten.length ? element("div", { class: "warn" }, `no better than ${beaten.join(", ")}`) : null,
    );
  });
  node.addEventListener("pointerleave", hideTip);
  return node;
}

function floorsAbove(cell, metric) {
  if (metric.higher === null) return [];
  const sign = metric.higher ? 1 : -1;
  return Object.entries(metric.floors)
    .filter(([, floor]) => sign * Number(floor) >= sign * Number(cell.mean))
    .map(([name, floor]) => `“${name}” (${short(floor)})`);
}
