// Images and videos of the same name side by side, one per row or per run.

const media = { name: null, seed: "first", size: "27rem", contents: null };

/** The data of an embedded file; parsed when it is first asked for, because it is most of the page. */
function content(index) {
  media.contents ??= JSON.parse(byId("contents").textContent);
  return media.contents[index];
}

function drawMedia() {
  const box = byId("media");
  const say = (why) => box.replaceChildren(element("p", { class: "quiet" }, why));
  if (!page.media.length) return say("These runs have no images on this machine.");
  box.style.gridTemplateColumns = `repeat(auto-fill, minmax(min(100%, ${media.size}), 1fr))`;
  const figures = [];
  for (const row of shown()) {
    const runs = page.rows[row].runs;
    let entries = page.media.filter((entry) => entry.name === media.name && runs.includes(entry.run));
    entries.sort((left, right) => left.run - right.run);
    if (media.seed === "first") entries = entries.slice(0, 1);
    else if (media.seed !== "all") entries = entries.filter((entry) => text(page.runs[entry.run].seed) === media.seed);
    figures.push(...entries.map((entry) => mediaFigure(row, entry)));
  }
  if (!figures.length) return say("None of the rows that are shown has this image.");
  return box.replaceChildren(...figures);
}

function mediaFigure(row, entry) {
  const run = page.runs[entry.run];
  const seed = run.seed === null ? run.name : `seed ${text(run.seed)}`;
  const title = `${entry.name} of ${page.rows[row].label}, ${seed}`;
  const caption = element(
    "figcaption",
    {},
    element("span", { class: "first" }, swatch(row), element("strong", {}, page.rows[row].label)),
    element("span", { class: "quiet" }, run.state === "finished" ? seed : `${seed}, ${run.state}`),
  );
  return element("figure", { "data-row": row }, caption, mediaBody(entry, title));
}

function mediaBody(entry, title) {
  if (entry.content === null) {
    const why = entry.problem ?? `left out: no room (${short(entry.bytes / 1e6, 2)} MB)`;
    return element("p", { class: "quiet missing" }, `${why}: `, element("code", {}, entry.path));
  }
  const source = content(entry.content);
  if (source.startsWith("data:video"))
    return element("video", { src: source, controls: true, loop: true, muted: true, "aria-label": title });
  const image = element("img", { src: source, alt: title });
  // an image of a few pixels is shown as large pixels, and not larger than that
  image.addEventListener("load", () => {
    image.style.maxWidth = `${Math.max(160, 5 * image.naturalWidth)}px`;
    image.classList.toggle("small", image.naturalWidth < 200);
  });
  const enlarged = { type: "button", class: "image", title: "Enlarge", onclick: () => enlarge(source, title) };
  return element("button", enlarged, image);
}

function enlarge(source, title) {
  const viewer = byId("viewer");
  const close = element("button", { type: "button", class: "close", onclick: () => viewer.close() }, "Close");
  const caption = element("figcaption", {}, title, close);
  viewer.replaceChildren(element("figure", {}, element("img", { src: source, alt: title }), caption));
  viewer.showModal();
}

function startMedia() {
  onChange(drawMedia);
  byId("viewer").addEventListener("click", (event) => {
    if (event.target === byId("viewer")) byId("viewer").close();
  });
  if (!page.media.length) return;
  const names = [...new Set(page.media.map((entry) => entry.name))];
  media.name = names[0];
  const seeds = [...new Set(page.media.map((entry) => text(page.runs[entry.run].seed)))];
  controls("media", media, drawMedia, [
    ["name", "file", names.map((name) => [name, name])],
    hasSeeds && [
      "seed",
      "seeds",
      [["first", "first of each row"], ["all", "all"], ...seeds.map((seed) => [seed, `seed ${seed}`])],
    ],
    ["size", "size", [["15rem", "small"], ["27rem", "medium"], ["44rem", "large"]]],
  ]);
  const lacking = page.media.filter((entry) => entry.content === null);
  if (!lacking.length) return;
  const paths = lacking.map((entry) =>
    element("li", {}, element("code", {}, entry.path), ` ${entry.problem ?? `${short(entry.bytes / 1e6, 2)} MB`}`),
  );
  const summary = `${plural(lacking.length, "file")} of ${page.media.length} not in this page`;
  byId("media-notes").append(
    element("details", {}, element("summary", {}, summary), element("ul", { class: "paths" }, ...paths)),
  );
}
