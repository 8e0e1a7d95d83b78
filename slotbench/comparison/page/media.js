// Pictures of the same name side by side, one per row or per run.

const media = { name: null, seed: "first", size: "27rem", contents: null };

const seedsOf = () => [...new Set(page.media.map((entry) => text(page.runs[entry.run].seed)))];

/** The data of an embedded file; parsed when it is first asked for, because it is most of the page. */
function content(index) {
  media.contents ??= JSON.parse(byId("contents").textContent);
  return media.contents[index];
}

function drawMedia() {
  const box = byId("media");
  if (!page.media.length) {
    box.replaceChildren(element("p", { class: "quiet" }, "These runs have no pictures on this machine."));
    return;
  }
  box.style.gridTemplateColumns = `repeat(auto-fill, minmax(min(100%, ${media.size}), 1fr))`;
  const figures = [];
  for (const row of shown()) {
    let entries = page.rows[row].runs.flatMap((run) =>
      page.media.filter((entry) => entry.run === run && entry.name === media.name),
    );
    if (media.seed === "first") entries = entries.slice(0, 1);
    else if (media.seed !== "all") entries = entries.filter((entry) => text(page.runs[entry.run].seed) === media.seed);
    figures.push(...entries.map((entry) => mediaFigure(row, entry)));
  }
  box.replaceChildren(
    ...(figures.length
      ? figures
      : [element("p", { class: "quiet" }, "None of the rows that are shown has this picture.")]),
  );
}

function mediaFigure(row, entry) {
  const run = page.runs[entry.run];
  const caption = element(
    "figcaption",
    {},
    element("span", { class: "first" }, swatch(row), element("strong", {}, page.rows[row].label)),
    element(
      "span",
      { class: "quiet" },
      `${run.seed === null ? run.name : `seed ${text(run.seed)}`}${run.state === "finished" ? "" : `, ${run.state}`}`,
    ),
  );
  const title = `${entry.name} of ${page.rows[row].label}${run.seed === null ? "" : `, seed ${text(run.seed)}`}`;
  if (entry.content === null) {
    const why = entry.problem ?? `left out: no room (${short(entry.bytes / 1e6, 2)} MB)`;
    return element(
      "figure",
      { "data-row": row },
      caption,
      element("p", { class: "quiet missing" }, `${why}: `, element("code", {}, entry.path)),
    );
  }
  const source = content(entry.content);
  if (source.startsWith("data:video")) {
    return element(
      "figure",
      { "data-row": row },
      caption,
      element("video", { src: source, controls: true, loop: true, muted: true, "aria-label": title }),
    );
  }
  const image = element("img", { src: source, alt: title });
  // a picture of a few pixels is shown as large pixels, and not larger than that
  image.addEventListener("load", () => {
    image.style.maxWidth = `${Math.max(160, 5 * image.naturalWidth)}px`;
    image.classList.toggle("small", image.naturalWidth < 200);
  });
  return element(
    "figure",
    { "data-row": row },
    caption,
    element(
      "button",
      { type: "button", class: "picture", title: "Enlarge", onclick: () => enlarge(source, title) },
      image,
    ),
  );
}

function enlarge(source, title) {
  const viewer = byId("viewer");
  const close = element("button", { type: "button", class: "close", onclick: () => viewer.close() }, "Close");
  viewer.replaceChildren(
    element("figure", {}, element("img", { src: source, alt: title }), element("figcaption", {}, title, close)),
  );
  viewer.showModal();
}

function startMedia() {
  byId("viewer").addEventListener("click", (event) => {
    if (event.target === byId("viewer")) byId("viewer").close();
  });
  const rowsWith = new Map();
  for (const entry of page.media) rowsWith.set(entry.name, (rowsWith.get(entry.name) ?? 0) + 1);
  const names = [...rowsWith.keys()];
  if (names.length) {
    media.name = names[0];
    const set = (name) => (value) => {
      media[name] = value;
      drawMedia();
    };
    const seeds = seedsOf();
    byId("media-controls").append(
      select(
        "file",
        "media-name",
        names.map((name) => [name, name]),
        media.name,
        set("name"),
      ),
      hasSeeds
        ? select(
            "seeds",
            "media-seed",
            [["first", "first of each row"], ["all", "all"], ...seeds.map((seed) => [seed, `seed ${seed}`])],
            media.seed,
            set("seed"),
          )
        : "",
      select(
        "size",
        "media-size",
        [
          ["15rem", "small"],
          ["27rem", "medium"],
          ["44rem", "large"],
        ],
        media.size,
        set("size"),
      ),
    );
  }
  const lacking = page.media.filter((entry) => entry.content === null);
  if (lacking.length) {
    byId("media-notes").append(
      element(
        "details",
        {},
        element("summary", {}, `${plural(lacking.length, "file")} of ${page.media.length} not in this page`),
        element(
          "ul",
          { class: "paths" },
          ...lacking.map((entry) =>
            element(
              "li",
              {},
              element("code", {}, entry.path),
              ` ${entry.problem ?? `${short(entry.bytes / 1e6, 2)} MB`}`,
            ),
          ),
        ),
      ),
    );
  }
  onChange(drawMedia);
}
