// A plot: scales, axes, floors and the box beside the pointer. What is drawn inside is up to the caller.

const MARGIN = { top: 8, right: 12, bottom: 36, left: 56 };

/** Maps numbers from `low`..`high` to pixels from `from` to `to`, evenly or by their logarithm. */
function scale(low, high, from, to, isLog) {
  const turn = isLog ? Math.log10 : (value) => value;
  const [a, b] = [turn(low), turn(high)];
  const map = (value) => from + ((turn(value) - a) / (b - a || 1)) * (to - from);
  map.low = low;
  map.high = high;
  map.isLog = isLog;
  map.invert = (pixel) => {
    const value = a + ((pixel - from) / (to - from || 1)) * (b - a);
    return isLog ? 10 ** value : value;
  };
  return map;
}

/** The range of numbers with a little room at both ends; null if there is nothing to show on such an axis. */
function extent(numbers, isLog, room = 0.05) {
  let [low, high] = [Infinity, -Infinity];
  for (const number of numbers) {
    if (number === null || !Number.isFinite(number) || (isLog && number <= 0)) continue;
    if (number < low) low = number;
    if (number > high) high = number;
  }
  if (low > high) return null;
  if (isLog) {
    const factor = high > low ? (high / low) ** room : 1.5;
    return [low / factor, high * factor];
  }
  const more = high > low ? room * (high - low) : Math.abs(high) * 0.1 || 1;
  return [low - more, high + more];
}

/** Round numbers within a scale's range, about `count` of them. */
function ticks(axis, count) {
  const { low, high, isLog } = axis;
  if (isLog && high / low > 8) {
    const decades = Math.log10(high / low);
    const steps = decades > 3 ? [1] : decades > 1.5 ? [1, 3] : [1, 2, 5];
    const every = Math.max(1, Math.ceil(decades / count));
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
      if (power % every === 0) for (const step of steps) found.push(Number(`${step}e${power}`));
    }
    return found.filter((tick) => tick >= low && tick <= high);
  }
  const rough = (high - low) / count;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = unit * [1, 2, 2.5, 5, 10].find((factor) => factor * unit >= rough);
  const found = [];
  for (let index = Math.ceil(low / step); index * step <= high; index++)
    found.push(Number((index * step).toPrecision(12)));
  return found;
}

/** All ticks of an axis in the same unit. */
function tickTexts(values) {
  const most = Math.max(...values.map(Math.abs));
  const [unit, sign] = most >= 2e6 ? [1e6, "M"] : most >= 1e4 ? [1e3, "k"] : [1, ""];
  return values.map((value) => {
    const number = Number((value / unit).toPrecision(6));
    if (number === 0) return "0";
    return minus(Math.abs(number) < 1e-4 ? number.toExponential() : `${number}${sign}`);
  });
}

let clips = 0;

/**
 * An empty plot with its axes.
 *
 * `x` and `y`: {range: [low, high], isLog, label, names, ticks}; `names` are the categories of an axis whose positions
 * are 0, 1, 2..., `ticks` the numbers to write at it where they are not to be chosen here. Gives {root, x, y, inside,
 * width, height, foot, left, right}: the element, the two scales, the group to draw in, cut off at the frame, and pixels.
 */
function plot({ width, height, x, y, label }) {
  const turned = x.names && x.names.some((name) => name.length * 6.5 > (width - MARGIN.left) / x.names.length);
  const bottom = turned ? 96 : MARGIN.bottom;
  const right = width - MARGIN.right;
  const foot = height - bottom;
  const xs = scale(...x.range, MARGIN.left, right, x.isLog);
  const ys = scale(...y.range, foot, MARGIN.top, y.isLog);
  const root = svg("svg", {
    viewBox: `0 0 ${width} ${height}`,
    class: "plot",
    role: "img",
    "aria-label": label,
    tabindex: 0,
  });
  const clip = `clip-${clips++}`;
  root.append(
    svg(
      "clipPath",
      { id: clip },
      svg("rect", { x: MARGIN.left, y: MARGIN.top - 4, width: right - MARGIN.left + 4, height: foot - MARGIN.top + 8 }),
    ),
  );
  const heights = ticks(ys, Math.max(2, Math.round(height / 55)));
  tickTexts(heights).forEach((name, index) => {
    const at = ys(heights[index]);
    root.append(
      svg("line", { class: "grid", x1: MARGIN.left, x2: right, y1: at, y2: at }),
      svg("text", { class: "tick", x: MARGIN.left - 6, y: at + 4, "text-anchor": "end" }, name),
    );
  });
  const places = x.names ? [...x.names.keys()] : (x.ticks ?? ticks(xs, Math.max(2, Math.round(width / 90))));
  (x.names ?? tickTexts(places)).forEach((name, index) => {
    const at = xs(places[index]);
    root.append(svg("line", { class: "mark", x1: at, x2: at, y1: foot, y2: foot + 4 }));
    const shortName = turned && name.length > 18 ? `${name.slice(0, 17)}…` : name;
    const place = turned
      ? { transform: `translate(${at + 4} ${foot + 14}) rotate(-35)`, "text-anchor": "end" }
      : { x: at, y: foot + 16, "text-anchor": "middle" };
    root.append(
      svg("text", { class: "tick", ...place }, shortName, shortName === name ? null : svg("title", {}, name)),
    );
  });
  root.append(
    svg("line", { class: "mark", x1: MARGIN.left, x2: right, y1: foot, y2: foot }),
    svg("text", { class: "axis-label", x: right, y: height - 3, "text-anchor": "end" }, x.label),
  );
  const inside = svg("g", { "clip-path": `url(#${clip})` });
  root.append(inside);
  return { root, x: xs, y: ys, inside, width, height, foot, left: MARGIN.left, right };
}

/** What is drawn beside scores: floors, and oracles under names that say so; name -> value. */
function references(metric) {
  const oracles = Object.entries(metric?.oracles ?? {}).map(([name, value]) => [`oracle: ${name}`, value]);
  return { ...(metric?.floors ?? {}), ...Object.fromEntries(oracles) };
}

/**
 * Which floors are drawn beside scores of these heights: those that leave the scores at least a third of the plot.
 *
 * Gives {near, far}, both name -> value.
 */
function nearFloors(heights, floors, isLog) {
  const near = {};
  const far = {};
  const inner = extent(heights, isLog, 0);
  const turn = isLog ? Math.log10 : (value) => value;
  for (const [name, given] of Object.entries(floors)) {
    const value = Number(given);
    if (!Number.isFinite(value) || (isLog && value <= 0)) continue;
    const [low, high] = inner ? inner.map(turn) : [0, 0];
    const reach = 2 * (high - low) || 1;
    (!inner || (turn(value) >= low - reach && turn(value) <= high + reach) ? near : far)[name] = value;
  }
  return { near, far };
}

/** A line of text on the floors that are too far away to be drawn. */
function farText(far) {
  const all = Object.entries(far).map(([name, value]) => `${name} ${short(value)}`);
  return all.length ? element("p", { class: "quiet small" }, `Far off this scale: ${all.join(", ")}.`) : null;
}

/** Dashed lines for what trivial answers score, dotted ones for oracles, named where there is room. */
function drawFloors(frame, floors) {
  let last = Infinity;
  const visible = Object.entries(floors)
    .map(([name, value]) => [name, frame.y(Number(value)), Number(value)])
    .filter(([, at]) => Number.isFinite(at) && at >= MARGIN.top - 2 && at <= frame.foot + 2)
    .sort((left, right) => right[1] - left[1]);
  for (const [name, at, value] of visible) {
    frame.inside.append(
      svg(
        "line",
        { class: name.startsWith("oracle: ") ? "floor oracle" : "floor", x1: frame.left, x2: frame.right, y1: at, y2: at },
        svg("title", {}, `${name}: ${short(value)}`),
      ),
    );
    if (last - at < 11 || at < MARGIN.top + 8) continue;
    last = at;
    frame.root.append(svg("text", { class: "floor-name", x: frame.right, y: at - 3, "text-anchor": "end" }, name));
  }
}

/** A path through points; a gap wherever one of the two is not a number. */
function line(frame, xs, ys) {
  let path = "";
  let pen = "M";
  for (let index = 0; index < xs.length; index++) {
    const [x, y] = [frame.x(xs[index]), ys[index] === null ? NaN : frame.y(ys[index])];
    if (!Number.isFinite(x) || !Number.isFinite(y)) {
      pen = "M";
      continue;
    }
    path += `${pen}${x.toFixed(1)} ${y.toFixed(1)}`;
    pen = "L";
  }
  return path;
}

/** The area between two curves over the same points. */
function band(frame, xs, lows, highs) {
  const upper = [];
  const lower = [];
  xs.forEach((x, index) => {
    // on a logarithmic axis a band that reaches below zero goes down to the frame
    const low = frame.y.isLog && lows[index] <= 0 ? frame.y.low : lows[index];
    const points = [frame.x(x), frame.y(highs[index]), frame.y(low)];
    if (!points.every(Number.isFinite)) return;
    upper.push(`${points[0].toFixed(1)} ${points[1].toFixed(1)}`);
    lower.unshift(`${points[0].toFixed(1)} ${points[2].toFixed(1)}`);
  });
  return upper.length > 1 ? `M${[...upper, ...lower].join("L")}Z` : "";
}

const SHAPES = [
  (r) => `M${-r} 0a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`,
  (r) => `M${-r} ${-r}h${2 * r}v${2 * r}h${-2 * r}Z`,
  (r) => `M0 ${-1.3 * r}L${1.2 * r} ${r}H${-1.2 * r}Z`,
  (r) => `M0 ${-1.4 * r}L${1.4 * r} 0L0 ${1.4 * r}L${-1.4 * r} 0Z`,
  (r) => `M0 ${1.3 * r}L${1.2 * r} ${-r}H${-1.2 * r}Z`,
];

/** A mark whose colour and shape tell row or group `index`. */
function dot(index, x, y, radius, attributes = {}) {
  const shape = SHAPES[Math.floor(index / COLOURS) % SHAPES.length];
  return svg("path", {
    ...attributes,
    class: `dot ${colour(index)} ${attributes.class ?? ""}`,
    d: shape(radius),
    transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})`,
  });
}

/** Calls `show(x, clientX, clientY)` with the pointer's place in the data, `hide()` when it leaves; arrow keys move it. */
function follow(frame, show, hide) {
  let at = null;
  const move = (pixel, clientX, clientY) => {
    at = Math.max(frame.left, Math.min(frame.right, pixel));
    show(frame.x.invert(at), clientX, clientY);
  };
  frame.root.addEventListener("pointermove", (event) => {
    const box = frame.root.getBoundingClientRect();
    const ratio = frame.width / box.width;
    move((event.clientX - box.left) * ratio, event.clientX, event.clientY);
  });
  frame.root.addEventListener("pointerleave", hide);
  frame.root.addEventListener("blur", hide);
  frame.root.addEventListener("keydown", (event) => {
    const direction = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!direction) return;
    event.preventDefault();
    const box = frame.root.getBoundingClientRect();
    const pixel = (at ?? frame.left) + (direction * (frame.right - frame.left)) / 40;
    move(pixel, box.left + (pixel * box.width) / frame.width, box.top + 20);
  });
}
