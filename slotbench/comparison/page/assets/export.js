// The table as text: its columns, order and drawn rows as they are shown, as CSV, Markdown or LaTeX.

const LATEX = {
  "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}",
  ...Object.fromEntries([..."&%$#_{}"].map((sign) => [sign, `\\${sign}`])),
  // after a line of a table, brackets and a star are read as arguments of its end
  ...Object.fromEntries([..."[]*"].map((sign) => [sign, `{${sign}}`])),
  "±": "$\\pm$", "↑": "$\\uparrow$", "↓": "$\\downarrow$", "²": "$^2$", "∞": "$\\infty$", "–": "--", "−": "$-$",
  "<": "$<$", ">": "$>$", "|": "\\textbar{}",
};
const ENTITIES = { "&": "&amp;", "<": "&lt;", ">": "&gt;" };

/** Text in one line, control characters and those that hide or reverse text as their codes. */
function oneLine(words) {
  const code = (sign) => `\\u${sign.codePointAt(0).toString(16).padStart(4, "0")}`;
  return String(words).replace(/[\p{Cc}\p{Cf}\p{Co}\p{Cs}\u2028\u2029]/gu, code);
}

function latexText(words) {
  return [...oneLine(words)].map((sign) => LATEX[sign] ?? sign).join("");
}

function markdownCell(words) {
  const plain = oneLine(words).replace(/[&<>]/g, (sign) => ENTITIES[sign]);
  return plain.replace(/[\\`*[\]{}|~$#!]|(?<![^\W_])_|_(?![^\W_])/g, "\\$&");
}

/** A cell of a CSV file; what a spreadsheet would take for a formula begins with an apostrophe. */
function csvCell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const words = oneLine(value);
  const isFormula = /^\s*[=+\-@\uff1d\uff0b\uff0d\uff20]/.test(words) && Number.isNaN(Number(words));
  const safe = isFormula ? `'${words}` : words;
  return /[",]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** What is exported: the columns, the rows that are drawn, and baselines and oracles if they are shown. */
function exported() {
  const chosen = columns.filter(({ id }) => table.columns.has(id));
  const beside = (kind, given) => {
    const names = new Set(chosen.flatMap(({ metric }) => Object.keys(metric?.[given] ?? {})));
    return [...names].map((name) => ({ kind, name, score: ({ metric }) => metric?.[given][name] }));
  };
  return {
    chosen,
    rows: sorted(shown()).map((row) => page.rows[row]),
    beside: table.baselines ? [...beside("baseline", "baselines"), ...beside("oracle", "oracles")] : [],
  };
}

/** Numbers in full: of a metric its mean, standard deviation and number of runs. */
function toCsv() {
  const { chosen, rows, beside } = exported();
  const name = ({ metric, hint, title, id }) =>
    metric ? [hint, `${hint}_std`, `${hint}_n`] : [id.startsWith("key ") ? hint : title];
  const cells = (row) => (column) => {
    if (!column.metric) return [typeof column.value(row) === "object" ? text(column.value(row)) : column.value(row)];
    const cell = row.cells[column.metric.name];
    return [cell?.mean, cell?.std, cell?.values.length];
  };
  const lines = [
    ["kind", "label", ...chosen.flatMap(name)],
    ...beside.map(({ kind, name: label, score }) => [
      kind,
      label,
      ...chosen.flatMap((column) => (column.metric ? [score(column), null, null] : [null])),
    ]),
    ...rows.map((row) => ["runs", row.label, ...chosen.flatMap(cells(row))]),
  ];
  return lines.map((line) => `${line.map(csvCell).join(",")}\n`).join("");
}

/** Headings and lines as they are shown, each text escaped and the best in bold. */
function asShown(escape, bold, italic) {
  const { chosen, rows, beside } = exported();
  const heading = ({ title, metric }) => escape(`${title} ${metric ? ARROWS[metric.higher] : ""}`.trim());
  const reference = (value, { metric }) =>
    value === undefined || value === null ? "" : escape(fixed(value, placesOf.get(metric.name)));
  const cell = (row) => (column) => {
    const node = column.cell ? column.cell(row) : number(String(column.value(row)));
    const parts = [...node.querySelectorAll(".mean, .spread, .interval")];
    const said = parts.map((part) => (part.className === "interval" ? ", " : "") + part.textContent).join("");
    const words = escape(said || node.textContent);
    return row.cells[column.metric?.name]?.best ? bold(words) : words;
  };
  return {
    headings: ["row", ...chosen.map(heading)],
    isText: [true, ...chosen.map((column) => Boolean(column.isText))],
    beside: beside.map(({ kind, name, score }) => [
      italic(escape(kind === "oracle" ? `oracle: ${name}` : name)),
      ...chosen.map((column) => reference(score(column), column)),
    ]),
    lines: rows.map((row) => [escape(row.label), ...chosen.map(cell(row))]),
  };
}

function toMarkdown() {
  const { headings, isText, beside, lines } = asShown(markdownCell, (words) => `**${words}**`, (words) => `*${words}*`);
  const rule = isText.map((left) => (left ? "---" : "---:"));
  return [headings, rule, ...beside, ...lines].map((line) => `| ${line.join(" | ")} |\n`).join("");
}

/** A `tabular` for the package booktabs. */
function toLatex() {
  const { headings, isText, beside, lines } = asShown(
    latexText,
    (words) => `\\textbf{${words}}`,
    (words) => `\\textit{${words}}`,
  );
  const ended = (line) => `${line.join(" & ")} \\\\`;
  return [
    ...[page.title, page.command].filter(Boolean).map((remark) => `% ${oneLine(remark)}`),
    `\\begin{tabular}{${isText.map((left) => (left ? "l" : "r")).join("")}}`,
    "\\toprule",
    ended(headings),
    "\\midrule",
    ...beside.map(ended),
    ...(beside.length ? ["\\midrule"] : []),
    ...lines.map(ended),
    "\\bottomrule",
    "\\end{tabular}\n",
  ].join("\n");
}

async function copy(words) {
  try {
    await navigator.clipboard.writeText(words);
  } catch {
    // browsers have no clipboard for a page from an address without encryption
    const field = element("textarea", {}, words);
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
}

function download(words, ending) {
  const name = `${page.title.replace(/[^\w.-]+/g, "_")}.${ending}`;
  element("a", { href: `data:text/plain;charset=utf-8,${encodeURIComponent(words)}`, download: name }).click();
}

function startExport() {
  const formats = [["CSV", "csv", toCsv], ["Markdown", "md", toMarkdown], ["LaTeX", "tex", toLatex]];
  const button = (label, name, onclick) =>
    element("button", { type: "button", "aria-label": `${label} ${name}`, onclick }, label);
  const line = ([name, ending, write]) => {
    const copied = button("Copy", name, async () => {
      await copy(write());
      copied.textContent = "Copied";
      setTimeout(() => (copied.textContent = "Copy"), 1500);
    });
    const saved = button("Download", name, () => download(write(), ending));
    return element("div", {}, element("span", {}, name), copied, saved);
  };
  const sheet = element("div", { class: "sheet formats" }, ...formats.map(line));
  const title = "The drawn rows with the columns that are shown";
  const summary = element("summary", { title }, "Export");
  byId("table-controls").append(element("details", { class: "menu", id: "export" }, summary, sheet));
}
