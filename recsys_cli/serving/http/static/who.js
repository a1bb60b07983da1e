// The side of the user: state, and its view.

import { byId, counted, element, label } from "./dom.js";

const SHOWN = 12;

export const state = {
  mode: "history", // of a new user, or "user": a known one
  user: "",
  added: [], // items of the new user, oldest first
  stored: [], // items of the known user, newest first; those with `feedback` are from after the training
  number: 0, // interactions of the known user
};

/** Items that were liked on this page, or as feedback: they leave the list on purpose. */
export const liked = () => (state.mode === "user" ? state.stored.filter((item) => item.feedback) : state.added);

export function render(remove) {
  const known = state.mode === "user";
  const waits = known && !state.user;
  byId("user-form").hidden = !known;
  byId("search-part").hidden = waits;
  byId("history-part").hidden = waits;
  byId("clear").hidden = known || !state.added.length;
  const items = known ? state.stored.slice(0, SHOWN) : [...state.added].reverse();
  byId("history").replaceChildren(...items.map((item) => row(item, !known || item.feedback ? remove : null)));
  const total = known ? state.number : items.length;
  byId("history-title").textContent = total ? `History: ${counted(total, "item")}` : "History";
  const rest = total - items.length;
  byId("history-more").textContent = rest > 0 ? `and ${counted(rest, "older item")}` : "";
  byId("history-empty").textContent = total ? "" : empty(known);
}

const empty = (known) => (known ? "No stored history." : "Nothing yet: search for a title, or like one of the list.");

function row(item, remove) {
  const button = remove && element("button", { class: "quiet", "aria-label": `Remove ${label(item)}`, onclick: () => remove(item) }, "×");
  return element("li", { class: remove ? "own" : "" }, element("span", {}, label(item)), button);
}

export function renderExamples(users, show) {
  const chips = users.map((user) => element("button", { "aria-label": `User ${user}`, onclick: () => show(String(user)) }, String(user)));
  byId("examples").replaceChildren(...(chips.length ? ["for example", ...chips] : []));
}
