// Lists of recommendations, one column per bundle.

import { sentence } from "./changes.js";
import { counted, element, label, valuesOf } from "./dom.js";

const SOURCES = {
  model: "Ranked by the model.",
  "fold-in": "Ranked by the model from this history, without training.",
  popularity: "The most popular items.",
  none: "No items.",
};

/** A column: heading, origin of the scores, list, and items that are gone. */
export function column(bundle, answer, comparison, actions) {
  const name = bundle ?? answer.bundle;
  const seen = answer.num_seen ? ` ${counted(answer.num_seen, "seen item")} left out.` : "";
  return element("section", { class: "column", "aria-label": name, "data-source": answer.source },
    element("h2", {}, name),
    element("p", { class: "soft" }, SOURCES[answer.source] + seen),
    answer.note && element("p", { class: "note" }, capital(answer.note)),
    element("p", { class: "changed" }, sentence(comparison)),
    answer.items.length ? list(answer, comparison, actions) : element("p", { class: "message" }, "Nothing to recommend here. Change the options or the history."),
    comparison.gone.length ? element("p", { class: "gone" }, "Gone: ", joined(comparison.gone.map((entry) => label(entry.item)))) : null);
}

/** A column that could not be loaded. */
export function failure(bundle, error, retry) {
  return element("section", { class: "column" },
    bundle && element("h2", {}, bundle),
    element("div", { class: "message" }, element("p", { role: "alert" }, capital(error.message)), element("button", { onclick: retry }, "Try again")));
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?)]$/.test(text) ? "" : ".");

function list(answer, { changes }, actions) {
  const best = Math.max(...answer.items.map((entry) => entry.score));
  const comparable = answer.items.every((entry) => entry.score > 0); // a bar of a negative score would mislead
  return element("ol", { class: "entries" }, answer.items.map((entry, row) => entryOf(entry, row + 1, changes[row], actions,
    score(entry.score, answer.source, comparable ? entry.score / best : null))));
}

function entryOf(entry, rank, change, actions, scored) {
  const nearest = element("div", { class: "similar", hidden: true });
  const opener = element("button", { class: "quiet", "aria-expanded": "false", "aria-label": `Similar to ${label(entry.item)}` }, "Similar");
  opener.addEventListener("click", () => toggle(opener, nearest, entry.item, actions));
  const values = valuesOf(entry.item).slice(0, 6);
  return element("li", { class: change === "new" ? "entry new" : "entry" },
    element("span", { class: "rank", "aria-hidden": "true" }, String(rank)),
    element("div", { class: "body" },
      element("p", { class: "title" }, label(entry.item), " ", mark(change)),
      values.length ? element("p", { class: "values" }, values.join(" · ")) : null,
      entry.because.length ? element("p", { class: "because" }, "because of ", joined(entry.because)) : null),
    element("div", { class: "side" }, scored, opener, likeButton(entry.item, actions)),
    nearest);
}

function likeButton(item, actions) {
  const liked = actions.isLiked(item);
  return element("button", { class: "like", "aria-pressed": String(liked), "aria-label": `Like ${label(item)}`,
    onclick: (event) => (liked ? actions.unlike : actions.like)(item, event.currentTarget) }, liked ? "Liked ×" : "Like");
}

function mark(change) {
  if (change === "new") return element("span", { class: "mark new" }, "new");
  if (!change) return null;
  const [arrow, word] = change > 0 ? ["▲", "up"] : ["▼", "down"];
  return element("span", { class: `mark ${word}`, role: "img", "aria-label": `moved ${word} by ${Math.abs(change)}` }, `${arrow} ${Math.abs(change)}`);
}

function joined(names) {
  return names.flatMap((name, row) => [["", row === names.length - 1 ? " and " : ", "][Math.min(row, 1)], element("em", {}, name)]);
}

function score(value, source, share) {
  const bar = element("span", { class: "bar", hidden: share === null }, element("span"));
  bar.firstChild.style.inlineSize = `${Math.round(100 * share)}%`;
  return element("span", { class: "score" }, source === "popularity" && Number.isInteger(value) ? `${value.toLocaleString("en")}×` : value.toLocaleString("en", { minimumSignificantDigits: 3, maximumSignificantDigits: 3 }), bar);
}

async function toggle(opener, nearest, item, actions) {
  nearest.hidden = !nearest.hidden;
  opener.setAttribute("aria-expanded", String(!nearest.hidden));
  if (nearest.hidden) return;
  nearest.replaceChildren(...(await actions.similar(item).then(near(actions), failed)));
}

const failed = (error) => [element("p", { class: "soft", role: "alert" }, capital(error.message))];

const near = (actions) => (answer) => {
  if (!answer.items.length) return [element("p", { class: "soft" }, capital(answer.note ?? "nothing is similar"))];
  const rows = answer.items.map((entry) => element("li", {}, element("span", {}, label(entry.item)), likeButton(entry.item, actions)));
  return [element("p", { class: "soft" }, "Similar items"), element("ul", {}, rows)];
};
