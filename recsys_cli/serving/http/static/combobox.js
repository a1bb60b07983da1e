// Search with suggestions, as the ARIA combobox pattern has it: arrow keys, Enter, Escape.

import { debounced, element, label } from "./dom.js";

/**
 * Make an input and a list a combobox.
 *
 * @param input the text field
 * @param list the listbox
 * @param search text to items, a promise
 * @param choose called with the chosen item
 */
export function combobox(input, list, search, choose) {
  let found = [];
  let active = -1;
  let latest = 0;

  const options = () => [...list.querySelectorAll("[role=option]")];

  function close() {
    latest += 1; // an answer that is still on its way is dropped
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    activate(-1);
  }

  function activate(place) {
    active = place;
    options().forEach((option, row) => option.setAttribute("aria-selected", String(row === place)));
    const option = options()[place];
    if (!option) return input.removeAttribute("aria-activedescendant");
    input.setAttribute("aria-activedescendant", option.id);
    return option.scrollIntoView({ block: "nearest" });
  }

  function show(items, text) {
    found = items;
    const rows = items.map((item, row) => optionOf(item, row));
    list.replaceChildren(...(rows.length ? rows : [element("li", { class: "soft nothing" }, `Nothing found for “${text}”`)]));
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    activate(rows.length ? 0 : -1);
  }

  function optionOf(item, row) {
    const values = Object.values(item.features ?? {}).flat().slice(0, 4).join(" · ");
    return element("li", { role: "option", id: `option-${row}`, onmousedown: (event) => event.preventDefault(), onclick: () => pick(row) },
      element("span", {}, label(item)), values ? element("small", {}, values) : null);
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
    const items = await search(text).catch(() => null);
    if (call === latest && items) show(items, text);
    return undefined;
  }

  function key(event) {
    const open = !list.hidden && options().length > 0;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && open) activate((active + step + found.length) % found.length);
    else if (step) ask();
    else if (event.key === "Enter" && open && active >= 0) pick(active);
    else if (event.key === "Escape" && !list.hidden) close();
    else return;
    event.preventDefault();
  }

  input.addEventListener("input", debounced(ask, 120));
  input.addEventListener("keydown", key);
  input.addEventListener("blur", close);
}
