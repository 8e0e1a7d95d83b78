// A metric's score against a setting, the parameters or the time per step.

const axis = {
  x: null,
  y: page.metrics[0]?.name ?? null,
  group: "",
  bars: "std",
  isLogX: false,
  isLogY: false,
  withSeeds: true,
  withFloors: false,
};

const isNumeric = (values) => values.every((value) => typeof value === "number");
const distinct = (values) => [...new Map(values.map((value) => [text(value), value])).values()];

function settingValues(key) {
  return distinct(page.rows.map((row) => row.settings[key]).filter((value) => value !== undefined));
}

/** What may be on the x axis: {id, title, isNumber, value(row)}; numbers with several values first. */
function axes() {
  const settings = page.keys.map(({ key, label }) => ({
    id: `key ${key}`,
    title: label,
    isNumber: isNumeric(settingValues(key)),
    count: settingValues(key).length,
    value: (row) => row.settings[key],
  }));
  const measured = [
    { id: "parameters", title: "parameters", isNumber: true, value: (row) => row.parameters ?? undefined },
    { id: "seconds", title: "seconds per step", isNumber: true, value: (row) => row.seconds_per_step ?? undefined },
  ].filter((choice) => page.rows.some((row) => choice.value(row) !== undefined));
  return [
    ...settings.filter((choice) => choice.isNumber && choice.count > 1),
    ...settings.filter((choice) => !choice.isNumber && choice.count > 1),
    ...measured,
    { id: "row", title: "row", isNumber: false, value: (row) => row.label },
  ];
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
    const place = x.isNumber ? Number(value) : names.findIndex((name) => text(name) === text(value));
    found.push({ row, at: place, cell, group: axis.group ? groups.indexOf(text(record.settings[axis.group])) : row });
  }
  const labels = names?.map((name) => (x.id === "row" ? page.rows[name].label : text(name))) ?? null;
  return { found, names: labels, groups };
}

function bar(cell) {
  const mean = Number(cell.mean);
  if (axis.bars === "std" && cell.std !== null) return [mean - cell.std, mean + cell.std];
  if (axis.bars === "interval" && cell.low !== null) return [Number(cell.low), Number(cell.high)];
  if (axis.bars === "range" && cell.values.length > 1)
    return [Math.min(...cell.values.map(Number)), Math.max(...cell.values.map(Number))];
  return null;
}

function drawAxis() {
  const box = byId("axis");
  hideTip();
  const x = choices.find((choice) => choice.id === axis.x);
  const metric = page.metrics.find(({ name }) => name === axis.y);
  if (!metric) {
    box.replaceChildren(element("p", { class: "quiet" }, "These runs have no scores."));
    return;
  }
  const { found, names, groups } = points(x, metric.name);
  byId("axis-legend").replaceChildren(
    ...(axis.group
      ? [
          element("span", { class: "quiet" }, `${keyLabel(axis.group)}:`),
          ...groups.map((name, index) => element("span", { class: "entry" }, swatch(index), name)),
        ]
      : filtered().length <= 24
        ? legend("axis", filtered())
        : []),
  );
  const floors = axis.withFloors ? references(metric) : {};
  const isLogX = axis.isLogX && !names;
  const heights = found.flatMap(({ cell }) => [
    Number(cell.mean),
    ...(bar(cell) ?? []),
    ...(axis.withSeeds ? cell.values.map(Number) : []),
  ]);
  const xRange = names
    ? [-0.5, names.length - 0.5]
    : extent(
        found.map(({ at }) => at),
        isLogX,
        0.06,
      );
  const { near, far } = nearFloors(heights, floors, axis.isLogY);
  const yRange = extent([...heights, ...Object.values(near)], axis.isLogY, 0.08);
  if (!found.length || !xRange || !yRange) {
    box.replaceChildren(
      element(
        "p",
        { class: "quiet empty" },
        found.length ? "Nothing above zero for a logarithmic scale." : "None of the rows that are shown has both.",
      ),
    );
    return;
  }
  const places = distinct(found.map(({ at }) => at)).sort((a, b) => a - b);
  const width = Math.max(300, Math.min(900, box.clientWidth));
  const label = `${metric.label} against ${x.title}, ${plural(found.length, "row")}`;
  const frame = plot({
    width,
    height: 380,
    x: { range: xRange, isLog: isLogX, label: x.title, names, ticks: !names && places.length <= 8 ? places : null },
    y: { range: yRange, isLog: axis.isLogY },
    label,
  });
  drawFloors(frame, near);
  drawPoints(frame, found, Boolean(names), x, metric);
  const better = metric.higher === null ? "" : metric.higher ? ", higher is better" : ", lower is better";
  box.replaceChildren(
    element(
      "figure",
      {},
      element(
        "figcaption",
        {},
        element("strong", {}, metric.label),
        element("span", { class: "quiet" }, `${metric.name}${better}`),
      ),
      frame.root,
      farText(far) ?? "",
    ),
  );
}

function drawPoints(frame, found, isCategory, x, metric) {
  const inOrder = [...new Set(found.map(({ group }) => group))].sort((a, b) => a - b);
  // beside one another where several groups share a category, and a little apart where rows share a number
  const room = isCategory ? (frame.x(1) - frame.x(0)) * 0.6 : Math.min(30, 5 * (inOrder.length - 1));
  const shift = (group) =>
    axis.group && inOrder.length > 1 ? (inOrder.indexOf(group) / (inOrder.length - 1) - 0.5) * room : 0;
  for (const group of inOrder) {
    const mine = found.filter((point) => point.group === group).sort((a, b) => a.at - b.at);
    const holder = svg("g", { class: `series ${colour(group)}`, "data-row": axis.group ? null : group });
    const isLine = !isCategory && mine.length > 1 && new Set(mine.map(({ at }) => at)).size === mine.length;
    if (isLine) {
      const path = line(
        frame,
        mine.map(({ at }) => at),
        mine.map(({ cell }) => Number(cell.mean)),
      );
      holder.append(svg("path", { class: "line", d: path, transform: `translate(${shift(group)} 0)` }));
    }
    for (const point of mine) drawPoint(frame, holder, point, shift(group), x, metric);
    frame.inside.append(holder);
  }
}

function drawPoint(frame, holder, { row, at, cell, group }, shift, x, metric) {
  const centre = frame.x(at) + shift;
  const height = frame.y(Number(cell.mean));
  if (!Number.isFinite(centre) || !Number.isFinite(height)) return;
  const ends = bar(cell)?.map((end) => (frame.y.isLog && end <= 0 ? frame.foot : frame.y(end)));
  if (ends)
    holder.append(
      svg("path", {
        class: "bar-line",
        d: `M${centre} ${ends[0]}V${ends[1]}M${centre - 4} ${ends[0]}h8M${centre - 4} ${ends[1]}h8`,
      }),
    );
  if (axis.withSeeds && cell.values.length > 1) {
    for (const value of cell.values) {
      const y = frame.y(Number(value));
      if (Number.isFinite(y)) holder.append(svg("circle", { class: "seed", cx: centre + 7, cy: y, r: 2 }));
    }
  }
  const record = page.rows[row];
  const place = x.id === "row" ? record.label : x.isNumber ? short(x.value(record), 6) : text(x.value(record));
  const spread = cell.std === null ? "" : ` ± ${short(cell.std, 2)} (${cell.values.length})`;
  const show = (clientX, clientY) => {
    showTip(
      clientX,
      clientY,
      element("strong", {}, record.label),
      element("div", {}, `${x.title}: ${place}`),
      element("div", {}, `${metric.label}: ${short(cell.mean)}${spread}`),
    );
  };
  const mark = dot(group, centre, height, 5, {
    class: "point",
    tabindex: 0,
    role: "img",
    "aria-label": `${page.rows[row].label}: ${short(cell.mean)}`,
    "data-point": row,
  });
  mark.addEventListener("pointermove", (event) => show(event.clientX, event.clientY));
  mark.addEventListener("pointerenter", () => emphasise(axis.group ? -1 : row));
  mark.addEventListener("focus", () => {
    const box = mark.getBoundingClientRect();
    show(box.right, box.bottom);
  });
  for (const name of ["pointerleave", "blur"]) {
    mark.addEventListener(name, () => {
      emphasise(-1);
      hideTip();
    });
  }
  holder.append(mark);
}

function keyLabel(key) {
  return page.keys.find((entry) => entry.key === key)?.label ?? key;
}

/** The setting to colour by when nobody has chosen: the other one that varies, if it has few values. */
function firstGroup() {
  const others = page.keys.filter(({ key }) => `key ${key}` !== axis.x && settingValues(key).length > 1);
  const isTelling =
    axis.x.startsWith("key ") && others.length > 0 && settingValues(others[0].key).length < page.rows.length;
  return isTelling ? others[0].key : "";
}

function startAxis() {
  axis.x = choices[0].id;
  axis.group = firstGroup();
  if (page.metrics.length) {
    const set = (name) => (value) => {
      axis[name] = value;
      drawAxis();
    };
    const groups = [
      ["", "row"],
      ...page.keys.filter(({ key }) => settingValues(key).length > 1).map(({ key, label }) => [key, label]),
    ];
    byId("axis-controls").append(
      select(
        "x",
        "axis-x",
        choices.map(({ id, title }) => [id, title]),
        axis.x,
        set("x"),
      ),
      select(
        "y",
        "axis-y",
        page.metrics.map(({ name, label }) => [name, label]),
        axis.y,
        set("y"),
      ),
      select("colour", "axis-group", groups, axis.group, set("group")),
      select(
        "bars",
        "axis-bars",
        [
          ["std", "standard deviation"],
          ["interval", "95 % interval"],
          ["range", "lowest to highest"],
          ["none", "none"],
        ],
        axis.bars,
        set("bars"),
      ),
      check("log x", "axis-log-x", axis.isLogX, set("isLogX")),
      check("log y", "axis-log-y", axis.isLogY, set("isLogY")),
      hasSeeds ? check("single seeds", "axis-seeds", axis.withSeeds, set("withSeeds")) : "",
      check("floors", "axis-floors", axis.withFloors, set("withFloors")),
    );
  }
  onChange(drawAxis);
}
