// A metric's score against a setting, the parameters or the time per step.

const axis = {
  x: null,
  y: page.metrics[0]?.name ?? null,
  group: "",
  bars: "std",
  logX: false,
  logY: false,
  seeds: true,
  baselines: false,
};

const distinct = (values) => [...new Map(values.map((value) => [text(value), value])).values()];
const settingValues = (key) =>
  distinct(page.rows.map((row) => row.settings[key]).filter((value) => value !== undefined));

/** What may be on the x axis: {id, title, isNumber, value(row)}; numbers with several values first. */
function axes() {
  const settings = page.keys
    .map(({ key, label }) => ({ id: `key ${key}`, title: label, key, value: (row) => row.settings[key] }))
    .filter(({ key }) => settingValues(key).length > 1)
    .map((choice) => ({ ...choice, isNumber: settingValues(choice.key).every((value) => typeof value === "number") }));
  const measured = [
    { id: "parameters", title: "parameters", isNumber: true, value: (row) => row.parameters ?? undefined },
    { id: "seconds", title: "seconds per step", isNumber: true, value: (row) => row.seconds_per_step ?? undefined },
  ].filter((choice) => page.rows.some((row) => choice.value(row) !== undefined));
  const isNumber = (choice) => choice.isNumber;
  const row = { id: "row", title: "row", isNumber: false, value: (row) => row.label };
  return [...settings.filter(isNumber), ...settings.filter((choice) => !isNumber(choice)), ...measured, row];
}

const choices = axes();

/** Rows as points: {row, at, cell, group}, only those that have both numbers. */
function points(x, metric) {
  const names = x.isNumber ? null : distinct(shown().map((row) => (x.id === "row" ? row : x.value(page.rows[row]))));
  const groups = axis.group ? settingValues(axis.group).map(text) : [];
  const found = [];
  for (const row of shown()) {
    const record = page.rows[row];
    const value = x.id === "row" ? row : x.value(record);
    const cell = record.cells[metric];
    if (!cell || (x.isNumber && value === undefined)) continue;
    const at = x.isNumber ? Number(value) : names.findIndex((name) => text(name) === text(value));
    found.push({ row, at, cell, group: axis.group ? groups.indexOf(text(record.settings[axis.group])) : row });
  }
  const labels = names?.map((name) => (x.id === "row" ? page.rows[name].label : text(name))) ?? null;
  return { found, names: labels, groups };
}

/** The two ends of a point's error bar, or null. */
function bar(cell) {
  const [mean, values] = [Number(cell.mean), cell.values.map(Number)];
  if (axis.bars === "std" && cell.std !== null) return [mean - cell.std, mean + cell.std];
  if (axis.bars === "interval" && cell.low !== null) return [Number(cell.low), Number(cell.high)];
  if (axis.bars === "range" && values.length > 1) return [Math.min(...values), Math.max(...values)];
  return null;
}

function drawAxis() {
  hideTip();
  const x = choices.find((choice) => choice.id === axis.x);
  const metric = metricByName.get(axis.y);
  if (!metric) return sayAxis("These runs have no scores.");
  const { found, names, groups } = points(x, metric.name);
  const label = page.keys.find(({ key }) => key === axis.group)?.label;
  const groupLegend = groups.map((name, index) => element("span", { class: "entry" }, swatch(index), name));
  const rowLegend = filtered().length <= 24 ? legend("axis", filtered()) : [];
  byId("axis-legend").replaceChildren(
    ...(axis.group ? [element("span", { class: "quiet" }, `${label}:`), ...groupLegend] : rowLegend),
  );
  const isLogX = axis.logX && !names;
  const seeds = ({ values }) => (axis.seeds ? values.map(Number) : []);
  const heights = found.flatMap(({ cell }) => [Number(cell.mean), ...(bar(cell) ?? []), ...seeds(cell)]);
  const places = distinct(found.map(({ at }) => at)).sort((a, b) => a - b);
  const xRange = names ? [-0.5, names.length - 0.5] : extent(places, isLogX, 0.06);
  const { near, far } = nearReferences(heights, axis.baselines ? references(metric) : {}, axis.logY);
  const yRange = extent([...heights, ...Object.values(near)], axis.logY, 0.08);
  if (!found.length || !xRange || !yRange)
    return sayAxis(
      found.length ? "Nothing above zero for a logarithmic scale." : "None of the rows that are shown has both.",
    );
  const better = metric.higher === null ? "" : metric.higher ? ", higher is better" : ", lower is better";
  byId("axis-title-of").replaceChildren(
    element("strong", {}, metric.label),
    element("span", { class: "quiet" }, `${metric.name}${better}`),
  );
  sayAxis(farText(far));
  byId("axis").hidden = false;
  byId("axis").setAttribute("aria-label", `${metric.label} against ${x.title}, ${plural(found.length, "row")}`);
  const beside = referenceLayers(near, xRange);
  const drawn = pointLayers(found, Boolean(names), axis.logY ? yRange[0] : -Infinity);
  return drawPlot("axis", byId("axis"), {
    height: 400,
    x: { range: xRange, isLog: isLogX, label: x.title, names, ticks: !names && places.length <= 8 ? places : null },
    y: { range: yRange, isLog: axis.logY },
    layers: { lines: [...beside.lines, ...drawn.lines], points: drawn.points, names: beside.names },
    onmove: (at, height, event) => showPoint(drawn.marks, x, metric, { xRange, yRange, isLogX }, at, height, event),
  });
}

/** Says why there is no plot, or what is not in it. */
function sayAxis(why) {
  byId("axis-far").textContent = why;
  byId("axis").hidden = true;
  hideTip();
}

function pointLayers(found, isCategory, bottom) {
  const inOrder = [...new Set(found.map(({ group }) => group))].sort((a, b) => a - b);
  // beside one another where several groups share a category
  const isApart = isCategory && axis.group && inOrder.length > 1;
  const shift = (group) => (isApart ? (inOrder.indexOf(group) / (inOrder.length - 1) - 0.5) * 0.5 : 0);
  const [lines, marks, small] = [[], [], []];
  for (const group of inOrder) {
    const mine = found.filter((point) => point.group === group).sort((a, b) => a.at - b.at);
    const means = mine.map(({ cell }) => Number(cell.mean));
    const xs = mine.map(({ at }) => at);
    if (!isCategory && mine.length > 1 && new Set(xs).size === mine.length) lines.push(lineOf(group, xs, means));
    for (const { row, at, cell } of mine) {
      const x = at + shift(group);
      const ends = bar(cell);
      if (ends) lines.push(lineOf(group, [x, x], ends.map((end) => Math.max(end, bottom)), { width: 1.4, dash: [] }));
      if (axis.seeds && cell.values.length > 1)
        for (const value of cell.values) small.push(pointOf(group, x, Number(value), { size: 4, fill: 0, row }));
      const isDiverged = page.rows[row].diverged > 0;
      marks.push(pointOf(group, x, Number(cell.mean), { size: 11, row, ...(isDiverged ? { marker: "x" } : {}) }));
    }
  }
  return { lines, points: [...small, ...marks], marks };
}

/** Says what the point nearest to the pointer is, if one is near; there is no vertical line here. */
function showPoint(marks, x, metric, { xRange, yRange, isLogX }, at, height, event) {
  const place = (value, [low, high], isLog) => {
    const turn = isLog ? Math.log : (number) => number;
    return (turn(value) - turn(low)) / (turn(high) - turn(low));
  };
  const away = (mark) =>
    Math.hypot(
      place(mark.x, xRange, isLogX) - place(at, xRange, isLogX),
      0.5 * (place(mark.y, yRange, axis.logY) - place(height, yRange, axis.logY)),
    );
  const nearest = at === null ? null : marks.reduce((best, mark) => (away(mark) < away(best) ? mark : best));
  if (!nearest || away(nearest) > 0.04) {
    hideTip();
    return null;
  }
  const record = page.rows[nearest.row];
  const cell = record.cells[metric.name];
  const spread = cell.std === null ? "" : ` ± ${short(cell.std, 2)} (${cell.values.length})`;
  const value = x.isNumber ? short(x.value(record), 6) : text(x.value(record));
  showTip(
    event.clientX,
    event.clientY,
    element("strong", {}, record.label),
    element("div", {}, `${x.title}: ${value}`),
    element("div", {}, `${metric.label}: ${short(cell.mean)}${spread}`),
    record.diverged ? element("div", { class: "warn" }, `${plural(record.diverged, "seed")} diverged`) : null,
  );
  return null;
}

/** The setting that colours by default: the other one that varies, if it has few values. */
function firstGroup() {
  const others = page.keys.filter(({ key }) => `key ${key}` !== axis.x && settingValues(key).length > 1);
  const isTelling = axis.x.startsWith("key ") && others.length && settingValues(others[0].key).length < page.rows.length;
  return isTelling ? others[0].key : "";
}

function startAxis() {
  axis.x = choices[0].id;
  axis.group = firstGroup();
  onChange(drawAxis);
  if (!page.metrics.length) return;
  const groups = page.keys.filter(({ key }) => settingValues(key).length > 1).map(({ key, label }) => [key, label]);
  controls("axis", axis, drawAxis, [
    ["x", "x", choices.map(({ id, title }) => [id, title])],
    ["y", "y", page.metrics.map(({ name, label }) => [name, label])],
    ["group", "colour", [["", "row"], ...groups]],
    [
      "bars",
      "bars",
      [["std", "standard deviation"], ["interval", "95 % interval"], ["range", "lowest to highest"], ["none", "none"]],
    ],
    ["logX", "log x", ""],
    ["logY", "log y", ""],
    hasSeeds && ["seeds", "single seeds", ""],
    ["baselines", "baselines", ""],
  ]);
}

// ---- the page, from top to bottom --------------------------------------------------------------------------------

startHeader();
startTable();
startExport();
startSettings();
startMedia();
byId("footer").textContent = "Everything on this page is in this one file; it asks no server for anything.";
changed();

// the plots wait for the library, which is read last
document.addEventListener("DOMContentLoaded", () => {
  startPlots();
  startCurves();
  startAxis();
  changed();
});
