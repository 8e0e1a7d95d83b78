// Plots by Bokeh: bands, lines, points and reference lines on two axes. What they show is up to the caller.

const MARKERS = ["circle", "square", "triangle", "diamond", "inverted_triangle"];
const LAYERS = {
  bands: ["xs", "ys", "colour", "row"],
  lines: ["xs", "ys", "colour", "dash", "width", "alpha", "row"],
  points: ["x", "y", "colour", "marker", "size", "fill", "row"],
  names: ["x", "y", "text", "offset"],
};
const NAME_HEIGHT = 13;
const plots = new Map();

function ink(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** The colour that row or group `index` has everywhere. */
function colour(index) {
  return ink(`line-${index % COLOURS}`);
}

/** A line of row or group `index` through points; null or NaN is a gap. */
function lineOf(index, xs, ys, look = {}) {
  const gaps = ys.map((y) => (y === null ? NaN : y));
  return { xs, ys: gaps, colour: colour(index), dash: dashList(dashes(index)), width: 2, alpha: 1, row: index, ...look };
}

/** The area of row `index` between two curves over the same points. */
function bandOf(index, xs, lows, highs) {
  const ys = [...highs, ...[...lows].reverse()];
  return { xs: [...xs, ...[...xs].reverse()], ys, colour: colour(index), row: index };
}

/** A mark whose colour and shape tell row or group `index`. */
function pointOf(index, x, y, look = {}) {
  const marker = MARKERS[Math.floor(index / COLOURS) % MARKERS.length];
  return { x, y, colour: colour(index), marker, size: 9, fill: 1, row: index, ...look };
}

function dashList(text) {
  return text ? text.split(" ").map(Number) : [];
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

/**
 * Which reference lines are drawn beside scores of these heights: those that leave the scores a third of the plot.
 *
 * Gives {near, far}, both name -> value.
 */
function nearReferences(heights, given, isLog) {
  const [near, far] = [{}, {}];
  const inner = extent(heights, isLog, 0);
  const turn = isLog ? Math.log10 : (value) => value;
  for (const [name, text] of Object.entries(given)) {
    const value = Number(text);
    if (!Number.isFinite(value) || (isLog && value <= 0)) continue;
    const [low, high] = inner ? inner.map(turn) : [0, 0];
    const reach = 2 * (high - low) || 1;
    (!inner || (turn(value) >= low - reach && turn(value) <= high + reach) ? near : far)[name] = value;
  }
  return { near, far };
}

/** The look of the line of a reference: a baseline's is dashed, an oracle's dotted. */
function referenceLook(name) {
  const dash = name.startsWith("oracle: ") ? [1, 4] : [4, 4];
  return { colour: ink("baseline"), dash, width: 1.2, alpha: 0.9, row: -1 };
}

/** Lines for what references score, named at the right. */
function referenceLayers(near, [left, right]) {
  const lines = Object.entries(near).map(([name, value]) => {
    return { xs: [left, right], ys: [value, value], ...referenceLook(name) };
  });
  const names = Object.entries(near).map(([text, y]) => ({ x: right, y, text }));
  return { lines, names };
}

/** Lines for references that score another number at each point, [name, {x, y}], named at their last one. */
function alongLayers(referenceLines) {
  const lines = referenceLines.map(([name, { x, y }]) => ({ xs: x, ys: y, ...referenceLook(name) }));
  const names = referenceLines.map(([text, { x, y }]) => ({ x: x[x.length - 1], y: y[y.length - 1], text }));
  return { lines, names };
}

/** Names of references with offsets in pixels, so that none lies on another: from the lowest up, within the frame. */
function apart(names, { range, isLog }, height) {
  const turn = isLog ? Math.log10 : (value) => value;
  const [low, high] = range.map(turn);
  // the frame is at least so high; taking it for lower than it is keeps the names further apart
  const inner = 0.6 * height;
  const places = names.map((name) => ({ name, place: ((turn(name.y) - low) / (high - low)) * inner }));
  const ordered = [...places].sort((left, right) => left.place - right.place);
  const lifted = ordered.map(({ place }) => place);
  for (let at = 1; at < lifted.length; at++) lifted[at] = Math.max(lifted[at], lifted[at - 1] + NAME_HEIGHT);
  let room = inner;
  for (let at = lifted.length - 1; at >= 0; at--) {
    room -= NAME_HEIGHT;
    lifted[at] = room = Math.min(lifted[at], room);
  }
  return ordered.map(({ name, place }, at) => ({ ...name, offset: place - lifted[at] }));
}

/** A line of text on the references that are too far away to be drawn. */
function farText(far) {
  const all = Object.entries(far).map(([name, value]) => `${name} ${short(value)}`);
  return all.length ? `Far off this scale: ${all.join(", ")}.` : "";
}

/**
 * Draws into `box`, or changes what is drawn there.
 *
 * Args:
 *   id: of the plot.
 *   box: the element; it may be new, and then the plot is made anew.
 *   content: {x, y, layers, height, onmove}; `x` and `y` are {range: [low, high], isLog, label, names, ticks}, where
 *     `names` are the categories at 0, 1, 2..., and `ticks` numbers to write; `layers` are lists by kind as above;
 *     `onmove(x, y, event)` gives the place for the vertical line, or null, and is called with null when the pointer
 *     leaves.
 */
function drawPlot(id, box, content) {
  const { x, y } = content;
  const kind = JSON.stringify([x.isLog, y.isLog, x.names, x.ticks, x.label, ink("ground")]);
  let plot = plots.get(id);
  if (plot?.kind !== kind || plot.box !== box) {
    removePlot(id);
    plot = newPlot(id, box, content);
    plots.set(id, { ...plot, kind, box });
  }
  plot.content = content;
  for (const [range, axis] of [[plot.figure.x_range, x], [plot.figure.y_range, y]])
    range.setv({ start: axis.range[0], end: axis.range[1], reset_start: axis.range[0], reset_end: axis.range[1] });
  const layers = { ...content.layers, names: apart(content.layers.names, y, content.height) };
  for (const [name, source] of Object.entries(plot.sources)) source.data = columnsOf(name, layers[name] ?? []);
}

function columnsOf(layer, items) {
  return Object.fromEntries(LAYERS[layer].map((column) => [column, items.map((item) => item[column])]));
}

function newPlot(id, box, content) {
  const { x, y } = content;
  const figure = Bokeh.Plotting.figure({
    name: id,
    height: content.height,
    sizing_mode: "stretch_width",
    x_axis_type: x.isLog ? "log" : "linear",
    y_axis_type: y.isLog ? "log" : "linear",
    x_range: new Bokeh.Range1d({ start: x.range[0], end: x.range[1] }),
    y_range: new Bokeh.Range1d({ start: y.range[0], end: y.range[1] }),
    tools: "box_zoom,reset,save",
    background_fill_color: ink("ground"),
    border_fill_color: ink("ground"),
    outline_line_color: null,
    min_border_left: 52,
    min_border_right: 10,
  });
  figure.toolbar.logo = null;
  figure.toolbar.autohide = true;
  styleAxes(figure, x);
  const sources = Object.fromEntries(
    Object.keys(LAYERS).map((name) => [name, new Bokeh.ColumnDataSource({ name, data: columnsOf(name, []) })]),
  );
  const field = (name) => ({ field: name });
  const colours = { line_color: field("colour"), fill_color: field("colour") };
  figure.patches(field("xs"), field("ys"), {
    source: sources.bands,
    fill_color: field("colour"),
    fill_alpha: 0.13,
    line_color: null,
  });
  figure.multi_line(field("xs"), field("ys"), {
    source: sources.lines,
    line_color: field("colour"),
    line_dash: field("dash"),
    line_width: field("width"),
    line_alpha: field("alpha"),
    line_join: "round",
  });
  figure.scatter(field("x"), field("y"), {
    source: sources.points,
    ...colours,
    fill_alpha: field("fill"),
    marker: field("marker"),
    size: field("size"),
    line_width: 1.4,
  });
  figure.text(field("x"), field("y"), field("text"), {
    source: sources.names,
    text_color: ink("baseline"),
    text_font_size: "11px",
    text_align: "right",
    y_offset: field("offset"),
    text_baseline: "bottom",
  });
  const plot = { figure, sources, content };
  followPointer(plot, id, box);
  plot.view = Bokeh.Plotting.show(figure, box);
  return plot;
}

function styleAxes(figure, x) {
  const quiet = ink("quiet");
  for (const axis of [...figure.below, ...figure.left]) {
    axis.setv({ axis_line_color: quiet, major_tick_line_color: quiet, minor_tick_line_color: null });
    axis.setv({ major_label_text_color: quiet, axis_label_text_color: quiet, axis_label_text_font_style: "bold" });
    axis.setv({ major_label_text_font_size: "12px", axis_label_text_font_size: "12px" });
  }
  for (const grid of figure.center) grid.grid_line_color = ink("grid");
  const [below] = figure.below;
  // plain text: a label in dollar signs would be taken for mathematics
  below.axis_label = new Bokeh.PlainText({ text: x.label });
  if (x.names) {
    below.ticker = new Bokeh.FixedTicker({ ticks: [...x.names.keys()] });
    const cut = (name) => (name.length > 24 ? `${name.slice(0, 23)}…` : name);
    below.major_label_overrides = new Map(x.names.map((name, at) => [at, new Bokeh.PlainText({ text: cut(name) })]));
    if (x.names.some((name) => name.length * x.names.length > 70)) below.major_label_orientation = 0.6;
  } else if (x.ticks) below.ticker = new Bokeh.FixedTicker({ ticks: x.ticks });
  // steps and parameters in full: 1,500,000 and not 1.500e+6
  if (!x.names && x.range[1] >= 1e4) below.formatter = new Bokeh.NumeralTickFormatter({ format: "0,0" });
}

/** The pointer's place in the data for the caller, and a vertical line where the caller reads the plot. */
function followPointer(plot, id, box) {
  const hair = new Bokeh.Span({ dimension: "height", location: 0, line_color: ink("quiet"), visible: false });
  plot.figure.add_layout(hair);
  let pointer = null;
  const remember = (event) => {
    pointer = event;
  };
  box.addEventListener("pointermove", remember, true);
  const leave = () => {
    hair.visible = false;
    plots.get(id)?.content.onmove(null);
  };
  plot.figure.on_event("mousemove", ({ x, y }) => {
    const place = pointer && plots.get(id)?.content.onmove(x, y, pointer);
    hair.setv(typeof place === "number" ? { location: place, visible: true } : { visible: false });
  });
  plot.figure.on_event("mouseleave", leave);
}

function removePlot(id) {
  const plot = plots.get(id);
  if (!plot) return;
  plots.delete(id);
  plot.view.then((view) => {
    view.remove();
    plot.figure.document?.clear();
  });
}

function startPlots() {
  Bokeh.logger.set_level("error");
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
}
