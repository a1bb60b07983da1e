// Elements from data. Text is inserted as text only: titles are untrusted.

export const byId = (id) => document.getElementById(id);

/** Create an element: properties (`class`, `on...`, `aria-...` and `data-...` included) and children. */
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  if (tag === "button") made.type = "button";
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name.includes("-") || name === "role" || name === "class") made.setAttribute(name, value);
    else made[name] = value;
  }
  made.append(...children.flat().filter((child) => child));
  return made;
}

/** Title of an item, or its id. */
export const label = (item) => item.title || String(item.id);

/** Call `action` after `delay` ms without another call. */
export function debounced(action, delay) {
  let timer;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(action, delay, ...values);
  };
}

/** "1 item", "2 items". */
export const counted = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
