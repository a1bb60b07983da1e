// Search with suggestions, as the ARIA combobox pattern has it: arrow keys, Enter, Escape.

import { element, label, valuesOf } from "./dom.js";

const PAUSE = 120; // ms without a key before a search

/** Make an input and a list a combobox; `search` is a promise of items by text, `choose` gets the chosen item. */
export function combobox(input, list, search, choose) {
  let found = [];
  let active = -1;
  let latest = 0;
  let timer;

  function show(rows) {
    list.replaceChildren(...rows);
    list.hidden = !rows.length;
    input.setAttribute("aria-expanded", String(rows.length > 0));
  }

  function close() {
    clearTimeout(timer);
    latest += 1; // an answer that is still on its way is dropped
    found = [];
    show([]);
    activate(-1);
  }

  function activate(row) {
    active = row;
    list.querySelectorAll("[role=option]").forEach((option, place) => option.setAttribute("aria-selected", String(place === row)));
    if (row < 0) return input.removeAttribute("aria-activedescendant");
    input.setAttribute("aria-activedescendant", `option-${row}`);
    return list.children[row].scrollIntoView({ block: "nearest" });
  }

  function optionOf(item, row) {
    const values = valuesOf(item).slice(0, 4).join(" · ");
    const keep = (event) => event.preventDefault(); // the focus stays in the input
    return element("li", { role: "option", id: `option-${row}`, onmousedown: keep, onclick: () => pick(row) }, label(item), element("small", {}, values));
  }

  function pick(row) {
    const item = found[row];
    input.value = "";
    close();
    choose(item);
  }

  async function ask() {
    const text = input.value.trim();
    if (!text) return close();
    const call = (latest += 1);
    const [items, problem] = await search(text).then((some) => [some, `Nothing found for “${text}”`], (error) => [[], error.message]);
    if (call !== latest) return undefined;
    found = items;
    show(items.length ? items.map(optionOf) : [element("li", { class: "soft nothing", role: "alert" }, problem)]);
    return activate(items.length ? 0 : -1);
  }

  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(ask, PAUSE);
  });
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && found.length) activate((active + step + found.length) % found.length);
    else if (step) ask();
    else if (event.key === "Enter" && active >= 0) pick(active);
    else if (event.key === "Escape" && !list.hidden) close();
    else return;
    event.preventDefault();
  });
}
