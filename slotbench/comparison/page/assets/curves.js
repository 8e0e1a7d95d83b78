// One plot per chosen metric: a line per row, the mean over its seeds, with their spread as a band.

const MOST_IN_TIP = 14;
const FEW_ROWS = 10;
const LENGTHS = "lengths/";
const ABSENCE = "absence/";

const curves = {
  metrics: new Set(firstMetrics()),
  over: "steps",
  scale: "linear",
  band: "std",
  smoothing: "0",
  seeds: false,
  baselines: true,
  rows: String(FEW_ROWS),
};

function firstMetrics() {
  // scores of one length are points of a curve over the lengths
  const drawn = page.metrics.map((metric) => metric.name.replace(/^lengths\/\d+T\//, LENGTHS));
  const first = ["top1", "rollout_mse"].map((name) => ABSENCE + name);
  const absence = page.curves.metrics.filter((name) => first.includes(name));
  const named = [...absence, ...new Set(drawn)].filter((name) => name in page.curves.values);
  const losses = ["train/loss", "val/loss"].filter((name) => page.curves.metrics.includes(name));
  const others = losses.filter((name) => !named.includes(name)).slice(0, Math.max(1, 6 - named.length));
  return [...named.slice(0, 5), ...others];
}

/** The rows that have lines: of those that are shown, the first of the table as it is sorted now. */
function rowsWithLines() {
  return sorted(shown()).slice(0, Number(curves.rows));
}

function drawCurves() {
  const rows = rowsWithLines();
  const box = byId("curves");
  hideTip();
  const entries = legend("curves", filtered().length <= FEW_ROWS ? filtered() : rows);
  const others = shown().length - rows.length;
  const rest = element("span", { class: "quiet small" }, `and ${plural(others, "row")} further down the table`);
  byId("curves-legend").replaceChildren(...(page.curves.metrics.length ? entries : []), ...(others > 0 ? [rest] : []));
  const names = page.curves.metrics.filter((name) => curves.metrics.has(name));
  for (const figure of [...box.children]) {
    if (names.includes(figure.dataset.metric)) continue;
    removePlot(`curves ${figure.dataset.metric}`);
    figure.remove();
  }
  const why = page.curves.metrics.length ? "Choose metrics above." : "These runs have no curves.";
  if (!names.length) box.replaceChildren(element("p", { class: "quiet" }, why));
  for (const name of names) drawCurve(name, rows, curveFigure(name, box, names));
}

/** The figure of a metric, in its place among the others. */
function curveFigure(name, box, names) {
  const found = [...box.children].find((figure) => figure.dataset.metric === name);
  if (found) return found;
  const metric = metricByName.get(name);
  const title = element("strong", {}, metric?.label ?? name);
  const subtitle = element("span", { class: "quiet" }, metric && metric.label !== name ? name : "\u00a0");
  const figure = element(
    "figure",
    { "data-metric": name },
    element("figcaption", {}, title, subtitle),
    element("div", { class: "plot", role: "img" }),
    element("p", { class: "quiet small far" }),
  );
  const later = names.slice(names.indexOf(name) + 1);
  box.insertBefore(figure, [...box.children].find((other) => later.includes(other.dataset.metric)) ?? null);
  return figure;
}

/** What a metric's curve is over; those over the length of clips, or over an absence, have a point for each. */
function axisOf(name) {
  if (name.startsWith(ABSENCE)) return { over: "steps", smoothing: 0, label: "frames since it was last seen" };
  if (name.startsWith(LENGTHS)) return { over: "steps", smoothing: 0, label: "length of a clip, in training clips" };
  return { over: curves.over, smoothing: Number(curves.smoothing), label: curves.over };
}

function drawCurve(name, rows, figure) {
  const { over, smoothing, label } = axisOf(name);
  const metric = metricByName.get(name);
  const given = curves.baselines ? references(metric) : {};
  const baselineLines = Object.entries((curves.baselines && page.baseline_curves[name]) || {});
  const isLog = curves.scale === "log";
  const drawn = rows
    .map((row) => ({ row, curve: rowCurve(name, row, over, smoothing) }))
    .filter(({ curve }) => curve);
  const ends = drawn.flatMap(({ curve }) => [curve.x[0], curve.x[curve.x.length - 1]]);
  const scores = drawn.flatMap(({ curve }) => heights(curve));
  const { near, far } = nearReferences(scores, given, isLog);
  const means = baselineLines.map(([by, { y }]) => [by, y.reduce((sum, value) => sum + value, 0) / y.length]);
  const beyond = nearReferences(scores, Object.fromEntries(means), isLog).far;
  const nearLines = baselineLines.filter(([by]) => !(by in beyond));
  const others = [...Object.values(near), ...nearLines.flatMap(([, line]) => line.y)];
  const [xRange, yRange] = [extent(ends, false, 0.01), extent([...scores, ...others], isLog)];
  const [box, note] = [figure.querySelector(".plot"), figure.querySelector(".far")];
  const isEmpty = !drawn.length || !yRange;
  note.textContent = isEmpty
    ? drawn.length
      ? "Nothing above zero for a logarithmic scale."
      : "None of the rows that are shown has this curve."
    : farText({ ...far, ...beyond });
  box.hidden = isEmpty;
  if (isEmpty) return;
  box.setAttribute("aria-label", `${metric?.label ?? name} over ${label}, ${plural(drawn.length, "row")}`);
  const beside = referenceLayers(near, xRange);
  const along = alongLayers(nearLines);
  // the first row is drawn last, on top
  const layers = [...drawn].reverse().map(({ row, curve }) => curveLayers(row, curve, yRange, isLog));
  drawPlot(`curves ${name}`, box, {
    height: 260,
    x: { range: xRange, label },
    y: { range: yRange, isLog },
    layers: {
      bands: layers.flatMap((layer) => layer.bands),
      lines: [...beside.lines, ...along.lines, ...layers.flatMap((layer) => layer.lines)],
      points: layers.flatMap((layer) => layer.points),
      names: [...beside.names, ...along.names],
    },
    onmove: (x, y, event) => (x === null ? hideTip() : readOff(name, drawn, given, baselineLines, x, event)),
  });
}

/** What has to be in sight of a curve. */
function heights(curve) {
  const all = curves.seeds ? curve.seeds.flatMap((seed) => seed.y) : [];
  if (curves.band !== "none" && curve.seeds.length > 1) all.push(...edges(curve, curves.band).flat());
  all.push(...curve.mean);
  if (curves.scale !== "middle") return all;
  const ordered = all.filter(Number.isFinite).sort((a, b) => a - b);
  return [ordered[Math.floor(0.02 * (ordered.length - 1))], ordered[Math.ceil(0.95 * (ordered.length - 1))]];
}

function curveLayers(row, curve, [bottom], isLog) {
  const [bands, lines, points] = [[], [], []];
  if (curves.band !== "none" && curve.seeds.length > 1) {
    const [lows, highs] = edges(curve, curves.band);
    // on a logarithmic axis a band that reaches below zero goes down to the frame
    bands.push(bandOf(row, curve.x, isLog ? lows.map((low) => (low > 0 ? low : bottom)) : lows, highs));
  }
  if (curves.seeds) for (const seed of curve.seeds) lines.push(lineOf(row, seed.x, seed.y, { width: 1, alpha: 0.5 }));
  // where some seeds have no value the mean is of others, and a bend there says nothing: a thinner line
  const isWhole = curve.n.map((n) => n === curve.seeds.length);
  const only = (keep) => curve.mean.map((mean, index) => (keep(index) ? mean : null));
  const isThin = (index) => !(isWhole[index - 1] ?? true) || !isWhole[index] || !(isWhole[index + 1] ?? true);
  if (!isWhole.every(Boolean)) lines.push(lineOf(row, curve.x, only(isThin), { width: 1 }));
  lines.push(lineOf(row, curve.x, only((index) => isWhole[index])));
  if (curve.x.length <= 12)
    curve.x.forEach((x, index) => {
      if (isWhole[index] || curve.x.length === 1) points.push(pointOf(row, x, curve.mean[index], { size: 6 }));
    });
  for (const { run, x, y } of curve.seeds) {
    if (page.runs[run].state === "diverged")
      points.push(pointOf(row, x[x.length - 1], y[y.length - 1], { marker: "x", size: 10 }));
  }
  return { bands, lines, points };
}

/** The values of all rows at the point nearest to the pointer, in the box beside it; gives that point. */
function readOff(name, drawn, given, baselineLines, x, event) {
  let place = null;
  for (const { curve } of drawn)
    for (const other of curve.x) if (place === null || Math.abs(other - x) < Math.abs(place - x)) place = other;
  const sign = metricByName.get(name)?.higher === false ? 1 : -1;
  const values = drawn
    .map(({ row, curve }) => ({
      row,
      mean: at(curve.x, curve.mean, place),
      std: at(curve.x, curve.std, place),
      n: curve.n[curve.x.findLastIndex((other) => other <= place)],
    }))
    .filter(({ mean }) => Number.isFinite(mean))
    .sort((left, right) => sign * (left.mean - right.mean));
  const cell = (content, kind) => element("td", { class: kind }, content);
  const line = ({ row, mean, std, n }) =>
    element(
      "tr",
      {},
      cell(swatch(row)),
      cell(page.rows[row].label),
      cell(short(mean), "number"),
      cell(n > 1 ? `± ${short(std, 2)} (${n})` : "", "number quiet"),
    );
  const beside = ([label, value]) =>
    element("tr", { class: "quiet" }, cell(""), cell(label), cell(short(value), "number"));
  const along = baselineLines.map(([label, line]) => [label, at(line.x, line.y, place)]);
  const others = [...Object.entries(given), ...along];
  const more = values.length - MOST_IN_TIP;
  showTip(
    event.clientX,
    event.clientY,
    element("strong", {}, placeText(name, place)),
    element("table", {}, ...values.slice(0, MOST_IN_TIP).map(line), ...others.map(beside)),
    more > 0 ? element("div", { class: "quiet" }, `and ${plural(more, "more row")}`) : null,
  );
  return place;
}

function placeText(name, place) {
  if (name.startsWith(ABSENCE)) return place > 0 ? `last seen ${short(place, 3)} frames ago` : "in sight at the end";
  if (name.startsWith(LENGTHS)) return `${place} training clips long`;
  return curves.over === "hours" ? `${short(place, 3)} h` : `step ${place.toLocaleString("en")}`;
}

function startCurves() {
  onChange(drawCurves);
  const lacking = page.curves.left_out;
  if (lacking.length) {
    const names = `${lacking.slice(0, 12).join(", ")}${lacking.length > 12 ? ", …" : ""}`;
    byId("curves-notes").textContent =
      `No room in this page for the curves of ${plural(lacking.length, "further metric")}: ${names}.`;
  }
  if (!page.curves.metrics.length) return;
  const named = (name) => (metricByName.get(name)?.label ?? name) === name;
  const options = page.curves.metrics.map((name) => [
    name,
    named(name) ? name : `${name} (${metricByName.get(name).label})`,
  ]);
  byId("curves-controls").append(menu("Metrics", "curves-metrics", options, curves.metrics, drawCurves));
  const withReferences = page.metrics.some((metric) => Object.keys(references(metric)).length);
  controls("curves", curves, drawCurves, [
    ["scale", "scale", [["linear", "linear"], ["log", "logarithmic"], ["middle", "linear, without extremes"]]],
    Object.keys(page.curves.clocks).length > 0 && ["over", "over", [["steps", "steps"], ["hours", "hours"]]],
    page.rows.length > FEW_ROWS &&
      ["rows", "rows", [["10", "first 10 of the table"], ["25", "first 25"], ["1000000", "all"]]],
    ["smoothing", "smooth", [["0", "as recorded"], ["0.05", "a little"], ["0.15", "more"], ["0.3", "much"]]],
    hasSeeds && ["band", "band", [["std", "standard deviation"], ["range", "lowest to highest"], ["none", "none"]]],
    hasSeeds && ["seeds", "single seeds", ""],
    withReferences && ["baselines", "baselines", "Baselines are dashed, oracles dotted"],
  ]);
}
