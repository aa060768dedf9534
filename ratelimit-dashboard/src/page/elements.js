// Elements, made without HTML: what comes from the service is only ever text.

export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? '' : value);
  }
  made.append(...children.filter((child) => child !== undefined && child !== null));
  return made;
}

/** Writes only what is new, so that screen readers are not told the same again. */
export function say(place, text) {
  if (place.textContent !== text) place.textContent = text;
}

const keys = new WeakMap();

/**
 * Shows an element for each item. What has the key of before is the same element, with the focus in it: while an
 * operator presses it, it is not replaced.
 */
export function showAll(place, items, key, make) {
  const before = new Map([...place.children].map((it) => [keys.get(it), it]));
  const shown = items.map((item, index) => {
    const its = key(item, index);
    const made = before.get(its) ?? make(item);
    before.delete(its);
    keys.set(made, its);
    return made;
  });
  for (const gone of [...place.children].filter((it) => !shown.includes(it))) gone.remove();
  shown.forEach((it, index) => {
    if (place.children[index] !== it) place.insertBefore(it, place.children[index] ?? null);
  });
}

let last = 0;

/** An id for an element that another one names. */
export const id = (of) => `${of}-${++last}`;

export const mayAct = document.querySelector('meta[name=access]').content === 'act';
