// One plot per chosen metric: a line per row, the mean over its seeds, with their spread as a band.

const HEIGHT = 240;
const MOST_IN_TIP = 14;
const FEW_ROWS = 10;
const hasClock = Object.keys(page.curves.clocks).length > 0;
const hasSeeds = page.rows.some((row) => row.runs.length > 1);
const metricByName = new Map(page.metrics.map((metric) => [metric.name, metric]));

const curves = {
  metrics: new Set(firstMetrics()),
  over: "steps",
  scale: "linear",
  band: "std",
  smoothing: 0,
  withSeeds: false,
  withFloors: true,
  most: FEW_ROWS,
};

function firstMetrics() {
  const named = page.metrics.map((metric) => metric.name).filter((name) => name in page.curves.values);
  const losses = ["train/loss", "val/loss"].filter((name) => page.curves.metrics.includes(name));
  return [
    ...named.slice(0, 5),
    ...losses.filter((name) => !named.includes(name)).slice(0, Math.max(1, 6 - named.length)),
  ];
}

/** The rows that have lines: of those that are shown, the first of the table as it is sorted now. */
function rowsWithLines() {
  return sorted(shown()).slice(0, curves.most);
}

function drawCurves() {
  const rows = rowsWithLines();
  const box = byId("curves");
  hideTip();
  const isFew = filtered().length <= FEW_ROWS;
  const entries = page.curves.metrics.length ? legend("curves", isFew ? filtered() : rows) : [];
  const others = shown().length - rows.length;
  byId("curves-legend").replaceChildren(
    ...entries,
    others > 0 ? element("span", { class: "quiet small" }, `and ${plural(others, "row")} further down the table`) : "",
  );
  box.classList.toggle("many", rows.length > 4);
  const names = page.curves.metrics.filter((name) => curves.metrics.has(name));
  if (!names.length) {
    const why = page.curves.metrics.length ? "Choose metrics above." : "These runs have no curves.";
    box.replaceChildren(element("p", { class: "quiet" }, why));
    return;
  }
  const narrowest = 330;
  const count = Math.max(1, Math.min(3, names.length, Math.floor(box.clientWidth / narrowest)));
  const width = Math.max(280, Math.floor((box.clientWidth - 20 * (count - 1)) / count));
  box.style.gridTemplateColumns = `repeat(${count}, minmax(0, 1fr))`;
  box.replaceChildren(...names.map((name) => curvePlot(name, rows, width)));
}

function curvePlot(name, rows, width) {
  const metric = metricByName.get(name);
  const floors = curves.withFloors ? references(metric) : {};
  const isLog = curves.scale === "log";
  const drawn = rows
    .map((row) => ({ row, curve: rowCurve(name, row, curves.over, curves.smoothing) }))
    .filter(({ curve }) => curve);
  const figure = element(
    "figure",
    { "data-metric": name },
    element(
      "figcaption",
      {},
      element("strong", {}, metric?.label ?? name),
      element("span", { class: "quiet" }, metric && metric.label !== name ? name : "\u00a0"),
    ),
  );
  const xRange = extent(
    drawn.flatMap(({ curve }) => [curve.x[0], curve.x[curve.x.length - 1]]),
    false,
    0.01,
  );
  const scores = drawn.flatMap(({ curve }) => heights(curve));
  const { near, far } = nearFloors(scores, floors, isLog);
  const yRange = extent([...scores, ...Object.values(near)], isLog);
  if (!drawn.length || !yRange) {
    const why = !drawn.length
      ? "None of the rows that are shown has this curve."
      : "Nothing above zero for a logarithmic scale.";
    figure.append(element("p", { class: "quiet empty" }, why));
    return figure;
  }
  const label = `${metric?.label ?? name} over ${curves.over}, ${plural(drawn.length, "row")}. Arrow keys read it off.`;
  const frame = plot({
    width,
    height: HEIGHT,
    x: { range: xRange, label: curves.over },
    y: { range: yRange, isLog },
    label,
  });
  drawFloors(frame, near);
  // the first row is drawn last, on top
  for (const { row, curve } of [...drawn].reverse()) drawRow(frame, row, curve);
  readOff(frame, name, drawn, floors);
  figure.append(frame.root, farText(far) ?? "");
  return figure;
}

/** What has to be in sight of a curve. */
function heights(curve) {
  const all = curves.withSeeds ? curve.seeds.flatMap((seed) => seed.y) : [];
  if (curves.band !== "none" && curve.seeds.length > 1) {
    // the lower edge of a band may be below zero where no value is
    all.push(...edges(curve, curves.band).flat());
  }
  all.push(...curve.mean);
  if (curves.scale !== "middle") return all;
  const ordered = all.filter(Number.isFinite).sort((a, b) => a - b);
  return [ordered[Math.floor(0.02 * (ordered.length - 1))], ordered[Math.ceil(0.95 * (ordered.length - 1))]];
}

function drawRow(frame, row, curve) {
  const group = svg("g", { class: `series ${colour(row)}`, "data-row": row });
  if (curves.band !== "none" && curve.seeds.length > 1) {
    group.append(svg("path", { class: "band", d: band(frame, curve.x, ...edges(curve, curves.band)) }));
  }
  if (curves.withSeeds)
    for (const seed of curve.seeds) group.append(svg("path", { class: "line thin", d: line(frame, seed.x, seed.y) }));
  // where some seeds have no value the mean is of others, and a bend there says nothing: a thinner line
  const isWhole = curve.n.map((n) => n === curve.seeds.length);
  const only = (keep) => curve.mean.map((mean, index) => (keep(index) ? mean : null));
  if (!isWhole.every(Boolean)) {
    const part = only((index) => !(isWhole[index - 1] ?? true) || !isWhole[index] || !(isWhole[index + 1] ?? true));
    group.append(svg("path", { class: "line part", d: line(frame, curve.x, part) }));
  }
  group.append(
    svg("path", {
      class: "line",
      d: line(
        frame,
        curve.x,
        only((index) => isWhole[index]),
      ),
    }),
  );
  if (curve.x.length <= 12) {
    curve.x.forEach((x, index) => {
      const y = frame.y(curve.mean[index]);
      if (Number.isFinite(y) && (isWhole[index] || curve.x.length === 1))
        group.append(dot(row, frame.x(x), y, curve.x.length === 1 ? 4 : 2.5));
    });
  }
  frame.inside.append(group);
}

/** The values of all rows at the point nearest to the pointer. */
function readOff(frame, name, drawn, floors) {
  const places = [...new Set(drawn.flatMap(({ curve }) => curve.x))].sort((a, b) => a - b);
  const hair = svg("line", { class: "hair", y1: MARGIN.top, y2: frame.foot, visibility: "hidden" });
  frame.root.append(hair);
  const better = metricByName.get(name)?.higher;
  const show = (x, clientX, clientY) => {
    const place = places.reduce((best, other) => (Math.abs(other - x) < Math.abs(best - x) ? other : best));
    hair.setAttribute("x1", frame.x(place));
    hair.setAttribute("x2", frame.x(place));
    hair.setAttribute("visibility", "visible");
    const values = drawn
      .map(({ row, curve }) => ({
        row,
        mean: at(curve.x, curve.mean, place),
        std: at(curve.x, curve.std, place),
        n: curve.n[curve.x.findLastIndex((other) => other <= place)],
      }))
      .filter(({ mean }) => Number.isFinite(mean))
      .sort((left, right) => (better === false ? left.mean - right.mean : right.mean - left.mean));
    const lines = values
      .slice(0, MOST_IN_TIP)
      .map(({ row, mean, std, n }) =>
        element(
          "tr",
          {},
          element("td", {}, swatch(row)),
          element("td", {}, page.rows[row].label),
          element("td", { class: "number" }, short(mean)),
          element("td", { class: "number quiet" }, n > 1 ? `± ${short(std, 2)} (${n})` : ""),
        ),
      );
    showTip(
      clientX,
      clientY,
      element("strong", {}, curves.over === "hours" ? `${short(place, 3)} h` : `step ${place.toLocaleString("en")}`),
      element(
        "table",
        {},
        ...lines,
        ...Object.entries(floors).map(([floor, value]) =>
          element(
            "tr",
            { class: "quiet" },
            element("td", {}),
            element("td", {}, floor),
            element("td", { class: "number" }, short(value)),
          ),
        ),
      ),
      values.length > MOST_IN_TIP
        ? element("div", { class: "quiet" }, `and ${plural(values.length - MOST_IN_TIP, "more row")}`)
        : null,
    );
  };
  follow(frame, show, () => {
    hair.setAttribute("visibility", "hidden");
    hideTip();
  });
}

function startCurves() {
  const set = (name) => (value) => {
    curves[name] = value;
    drawCurves();
  };
  if (page.curves.metrics.length) {
    const options = page.curves.metrics.map((name) => [
      name,
      metricByName.has(name) && metricByName.get(name).label !== name
        ? `${name} (${metricByName.get(name).label})`
        : name,
    ]);
    const withFloors = page.metrics.some((metric) => Object.keys(references(metric)).length);
    byId("curves-controls").append(
      menu("Metrics", "curve-metrics", options, curves.metrics, drawCurves),
      select(
        "scale",
        "curve-scale",
        [
          ["linear", "linear"],
          ["log", "logarithmic"],
          ["middle", "linear, without extremes"],
        ],
        curves.scale,
        set("scale"),
      ),
      hasClock
        ? select(
            "over",
            "curve-over",
            [
              ["steps", "steps"],
              ["hours", "hours"],
            ],
            curves.over,
            set("over"),
          )
        : "",
      page.rows.length > FEW_ROWS
        ? select(
            "rows",
            "curve-rows",
            [
              ["10", "first 10 of the table"],
              ["25", "first 25"],
              ["1000000", "all"],
            ],
            "10",
            (value) => set("most")(Number(value)),
          )
        : "",
      select(
        "smooth",
        "curve-smoothing",
        [
          ["0", "as recorded"],
          ["0.05", "a little"],
          ["0.15", "more"],
          ["0.3", "much"],
        ],
        "0",
        (value) => set("smoothing")(Number(value)),
      ),
      hasSeeds
        ? select(
            "band",
            "curve-band",
            [
              ["std", "standard deviation"],
              ["range", "lowest to highest"],
              ["none", "none"],
            ],
            curves.band,
            set("band"),
          )
        : "",
      hasSeeds ? check("single seeds", "curve-seeds", curves.withSeeds, set("withSeeds")) : "",
      withFloors
        ? check("floors", "curve-floors", curves.withFloors, set("withFloors"), "What trivial answers score, dashed; oracles, dotted")
        : "",
    );
  }
  const lacking = page.curves.left_out;
  if (lacking.length) {
    const names = `${lacking.slice(0, 12).join(", ")}${lacking.length > 12 ? ", …" : ""}`;
    byId("curves-notes").textContent =
      `No room in this page for the curves of ${plural(lacking.length, "further metric")}: ${names}.`;
  }
  onChange(drawCurves);
}
