// What is known of every knob of every trainer: fetched once, when somebody searches or reads.

let asked = null;

/** The knobs by the names of their inputs; an empty object if the console does not answer. */
export function knobIndex(form) {
  asked ??= fetch(form.dataset.index, { headers: { Accept: "application/json" } })
    .then((response) => (response.ok ? response.json() : Promise.reject(new Error(String(response.status)))))
    .then((answer) => answer.knobs)
    .catch(() => {
      asked = null; // the next one tries again
      return {};
    });
  return asked;
}

/** The spelling of a knob that a query is about, if it is one: {trainer, name, whose}. */
export function spellingOf(known, query) {
  const plain = query.replace(/^-+/, "").replaceAll("-", "_");
  return (known?.flags ?? []).find((flag) => flag.name.toLowerCase().replace(/^[-+]+/, "").replaceAll("-", "_").includes(plain));
}
