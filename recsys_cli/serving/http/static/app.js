// The page: a user or a history on one side, recommendations of one or two bundles on the other.

import * as api from "./api.js";
import { compare, sentence } from "./changes.js";
import { combobox } from "./combobox.js";
import { byId, counted, element } from "./dom.js";
import { column, failure } from "./results.js";
import { liked, render, renderExamples, state } from "./who.js";

const before = new Map(); // entries by bundle, for the marks of changes
let latest = 0;

function shownBundles() {
  const [first, second] = [byId("first").value, byId("second").value];
  return [first || undefined, ...(second && second !== first ? [second] : [])];
}

function query(bundle) {
  return {
    ...(state.mode === "user" ? { user: state.user } : { history: state.added.map((item) => item.id) }),
    k: Number(byId("k").value),
    exclude_seen: byId("exclude-seen").checked,
    where: byId("where").value.trim() || undefined,
    explain: true,
    bundle,
  };
}

/** Load the lists; `marks` compares with the lists before, `focus` is the position to return to. */
async function refresh({ marks = false, focus = null } = {}) {
  const call = (latest += 1);
  const results = byId("results");
  render(remove);
  results.removeAttribute("aria-busy");
  if (state.mode === "user" && !state.user) return results.replaceChildren(invitation());
  if (!marks) before.clear();
  results.setAttribute("aria-busy", "true");
  const loaded = await Promise.all(shownBundles().map(load));
  if (call !== latest) return undefined; // a later call has replaced this one
  loaded.forEach(({ bundle, items }) => before.set(bundle, items));
  results.removeAttribute("aria-busy");
  results.replaceChildren(...loaded.map((one) => one.view()));
  byId("status").textContent = loaded.map((one) => one.said).join(" ");
  return focus && restore(focus);
}

async function load(bundle) {
  try {
    const answer = await api.recommend(query(bundle));
    const comparison = compare(before.get(bundle), answer.items, new Set(liked().map((item) => String(item.id))));
    const actions = { like, unlike: remove, isLiked, similar: (item) => api.similar(item.id, bundle) };
    const said = [bundle, counted(answer.items.length, "recommendation"), sentence(comparison)].filter(Boolean).join(", ");
    return { bundle, items: answer.items, view: () => column(bundle, answer, comparison, actions), said: `${said}.` };
  } catch (error) {
    askForToken(error);
    return { bundle, view: () => failure(bundle, error, () => refresh()), said: "" };
  }
}

function askForToken(error) {
  if (error.status !== 401 || !byId("token-form").hidden) return;
  byId("token-form").hidden = false;
  byId("token").focus();
}

const invitation = () => element("p", { class: "message" }, "Enter a user id to see the recommendations of this user.");

const isLiked = (item) => liked().some((one) => String(one.id) === String(item.id));

async function like(item, button = null) {
  const focus = button && positionOf(button);
  if (isLiked(item)) return;
  if (state.mode === "history") state.added.push(item);
  else if (!(await sent(api.like, item))) return;
  await refresh({ marks: true, focus });
}

/** Take a like back, from the list (its button keeps the focus) or from the history. */
async function remove(item, button = null) {
  const focus = button && positionOf(button);
  if (state.mode === "history") state.added = state.added.filter((one) => String(one.id) !== String(item.id));
  else if (!(await sent(api.unlike, item))) return;
  await refresh({ marks: true, focus });
  if (!focus) (document.querySelector("#history button") ?? byId("search")).focus();
}

/** Send feedback of the known user and read the new history; on a failure nothing changes. */
async function sent(send, item) {
  try {
    await send(state.user, item.id);
    await readUser();
    return true;
  } catch (error) {
    byId("results").prepend(failure(null, error, () => refresh()));
    askForToken(error);
    return false;
  }
}

function positionOf(button) {
  const columns = [...document.querySelectorAll(".column")];
  const place = columns.findIndex((one) => one.contains(button));
  return { place, row: [...(columns[place]?.querySelectorAll(".entry") ?? [])].findIndex((one) => one.contains(button)) };
}

/** Focus the like button that is now in a position. */
function restore({ place, row }) {
  const buttons = document.querySelectorAll(".column")[place]?.querySelectorAll(".side .like") ?? [];
  (buttons[Math.min(row, buttons.length - 1)] ?? byId("results")).focus();
}

async function readUser() {
  const user = state.user;
  const found = await api.userOf(user, shownBundles()[0]);
  if (state.user === user) Object.assign(state, { stored: found.history, number: found.num_interactions });
}

async function showUser(id) {
  Object.assign(state, { mode: "user", user: id, stored: [], number: 0 });
  byId("user").value = id;
  document.querySelector("input[name=mode][value=user]").checked = true;
  history.replaceState(null, "", id ? `#user=${encodeURIComponent(id)}` : "#");
  if (id) await readUser().catch(() => null); // the list says why
  await refresh();
}

function setMode(mode) {
  state.mode = mode;
  if (mode === "history") history.replaceState(null, "", "#");
  return refresh();
}

async function fillBundles() {
  const bundles = await api.bundles().catch(() => []);
  const names = bundles.map((one) => one.name);
  byId("exclude-seen").checked = !bundles.some((one) => one.repeats);
  const options = () => names.map((name) => element("option", {}, name));
  byId("first").replaceChildren(...options());
  byId("second").replaceChildren(element("option", { value: "" }, "no other"), ...options());
  byId("bundles").hidden = names.length < 2;
}

function onSubmit(form, action) {
  byId(form).addEventListener("submit", (event) => {
    event.preventDefault();
    action();
  });
}

function wire() {
  for (const radio of document.querySelectorAll("input[name=mode]")) radio.addEventListener("change", () => setMode(radio.value));
  for (const id of ["first", "second", "k", "exclude-seen"]) byId(id).addEventListener("change", () => refresh());
  onSubmit("user-form", () => showUser(byId("user").value.trim()));
  onSubmit("options", () => refresh());
  onSubmit("token-form", () => {
    api.setToken(byId("token").value);
    byId("token-form").hidden = true;
    start();
  });
  byId("clear").addEventListener("click", () => {
    state.added = [];
    refresh();
    byId("search").focus();
  });
  combobox(byId("search"), byId("found"), (text) => api.search(text, shownBundles()[0]), (item) => like(item));
}

async function start() {
  await fillBundles();
  api.examples(3).then((users) => renderExamples(users, showUser), () => null);
  const user = new URLSearchParams(location.hash.slice(1)).get("user");
  return user ? showUser(user) : refresh();
}

wire();
start();
