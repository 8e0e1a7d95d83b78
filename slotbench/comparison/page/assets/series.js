// Curves over steps or hours: one run's as recorded, and the mean over the runs of a row.

const MOST_ON_GRID = 600;

/** A run's curve as {x, y} without its gaps, over "steps" or "hours"; null if there is none. */
function runCurve(metric, run, over, smoothing) {
  const found = page.curves.values[metric]?.[run];
  if (!found) return null;
  const [series, values] = found;
  const steps = page.curves.steps[series];
  const clock = over === "hours" ? page.curves.clocks[run] : null;
  if (over === "hours" && !clock) return null;
  const x = [];
  const y = [];
  const recorded = [];
  values.forEach((value, index) => {
    if (value === null) return;
    recorded.push(steps[index]);
    x.push(clock ? at(page.curves.steps[clock[0]], clock[1], steps[index], true) : steps[index]);
    y.push(value);
  });
  return x.length ? { x, y: smooth(recorded, y, smoothing) } : null;
}

/** The value at `x` on straight lines between points; outside them NaN, or the nearest if `isHeld`. */
function at(xs, ys, x, isHeld = false) {
  const last = xs.length - 1;
  if (x < xs[0]) return isHeld ? ys[0] : NaN;
  if (x > xs[last]) return isHeld ? ys[last] : NaN;
  let [low, high] = [0, last];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] <= x) low = middle;
    else high = middle;
  }
  if (xs[low] === x || high === low) return ys[low];
  return ys[low] + ((ys[high] - ys[low]) * (x - xs[low])) / (xs[high] - xs[low]);
}

/**
 * Each value on the straight line that fits a window of the given share of the curve best (least squares).
 *
 * Within a curve that is a centred mean, which does not lag; at its ends, where a mean would pull inwards, the line
 * keeps the slope.
 */
function smooth(xs, ys, share) {
  const half = Math.round((share * ys.length) / 2);
  if (half < 1) return ys;
  return ys.map((_, index) => {
    const [from, to] = [Math.max(0, index - half), Math.min(ys.length, index + half + 1)];
    let [x, y, squares, products] = [0, 0, 0, 0];
    for (let at = from; at < to; at++) [x, y] = [x + xs[at], y + ys[at]];
    [x, y] = [x / (to - from), y / (to - from)];
    for (let at = from; at < to; at++) {
      squares += (xs[at] - x) ** 2;
      products += (xs[at] - x) * (ys[at] - y);
    }
    return squares > 0 ? y + (products / squares) * (xs[index] - x) : y;
  });
}

const known = new Map();

/**
 * A row's curves: {x, mean, std, low, high, n, seeds: [{run, x, y}]}, or null if none of its runs has the metric.
 *
 * Seeds that were logged at different steps are read off between their points. A point is the mean over the seeds that
 * reach so far: `n` of them.
 */
function rowCurve(metric, row, over, smoothing) {
  const key = `${metric}\n${row}\n${over}\n${smoothing}`;
  if (known.has(key)) return known.get(key);
  const seeds = page.rows[row].runs
    .map((run) => ({ run, ...runCurve(metric, run, over, smoothing) }))
    .filter((seed) => seed.x);
  const curve = seeds.length ? average(seeds) : null;
  known.set(key, curve);
  return curve;
}

function average(seeds) {
  let x = [...new Set(seeds.flatMap((seed) => seed.x))].sort((a, b) => a - b);
  if (x.length > MOST_ON_GRID)
    x = Array.from(
      { length: MOST_ON_GRID },
      (_, index) => x[Math.round((index * (x.length - 1)) / (MOST_ON_GRID - 1))],
    );
  const curve = { x, mean: [], std: [], low: [], high: [], n: [], seeds };
  for (const place of x) {
    const values = seeds.map((seed) => at(seed.x, seed.y, place)).filter(Number.isFinite);
    const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
    const squares = values.reduce((sum, value) => sum + (value - mean) ** 2, 0);
    curve.mean.push(mean);
    curve.std.push(values.length > 1 ? Math.sqrt(squares / (values.length - 1)) : 0);
    curve.low.push(Math.min(...values));
    curve.high.push(Math.max(...values));
    curve.n.push(values.length);
  }
  return curve;
}

/** The two edges of a curve's band: "std", "range" or "none". */
function edges(curve, kind) {
  if (kind === "range") return [curve.low, curve.high];
  return [
    curve.mean.map((mean, index) => mean - curve.std[index]),
    curve.mean.map((mean, index) => mean + curve.std[index]),
  ];
}
