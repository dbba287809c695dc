// Fields with a number and a slider. A slider stands on a rung of a ladder of round numbers; typing may be finer.

function ladder(low, high, digits, whole = false) {
  const found = new Set();
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high) + 1e-9; power++) {
    for (const digit of digits) {
      const value = Number((digit * 10 ** power).toPrecision(6));
      if (value >= low * 0.999 && value <= high * 1.001) found.add(whole ? Math.round(value) : value);
    }
  }
  return [...found].sort((a, b) => a - b);
}

const FINE = Array.from({ length: 90 }, (_, step) => 1 + step / 10);
const COARSE = [1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9];

export const LADDERS = {
  users: ladder(100, 1e6, FINE, true),
  rounds: ladder(1, 1000, FINE, true),
  dimensions: ladder(1, 1e7, COARSE, true),
  delta: ladder(1e-12, 1e-3, [1, 2, 5]),
  keep: ladder(0.1, 100, COARSE),
  norm: ladder(0.01, 100, FINE),
  clip: ladder(0.001, 10, FINE),
  cap: ladder(0.01, 10, FINE),
  target: ladder(0.1, 10, FINE),
  budget: ladder(0.01, 10, FINE),
};

export function plain(value) {
  return Math.abs(value) < 1e-3 ? value.toExponential().replace("e+", "e") : String(value);
}

// The rung nearest to a number, by ratio.
function rung(steps, value) {
  let best = 0;
  steps.forEach((step, number) => {
    if (Math.abs(Math.log(step / value)) < Math.abs(Math.log(steps[best] / value))) best = number;
  });
  return best;
}

// Tie a text and a slider together; `changed` is called when somebody moves either.
export function tie(name, text, slider, changed) {
  const steps = LADDERS[name];
  slider.min = 0;
  slider.max = steps.length - 1;
  slider.step = 1;
  const said = () => slider.setAttribute("aria-valuetext", text.value || text.placeholder || "none");
  const follow = () => {
    const value = Number(text.value.replaceAll(",", ""));
    if (value > 0) slider.value = rung(steps, value);
    else if (text.value === "") slider.value = steps.length - 1;
    said();
  };
  slider.addEventListener("input", () => {
    text.value = plain(steps[slider.value]);
    said();
    changed();
  });
  text.addEventListener("input", () => {
    follow();
    changed();
  });
  follow();
  return follow;
}

// Words beside the fields that could not be understood; none beside all others.
export function showErrors(form, fields) {
  for (const field of form.querySelectorAll("[data-field]")) {
    const name = field.dataset.field, error = field.querySelector(`#${name}-error`), text = field.querySelector(`#${name}`);
    error.textContent = fields[name] ?? "";
    if (text) text.setAttribute("aria-invalid", name in fields);
  }
  // Budgets are many: the error says which.
  const row = /row (\d+)/.exec(fields.shares ?? "");
  form.querySelectorAll("#rows .row").forEach((each, number) => {
    for (const text of each.querySelectorAll("input[type=text]")) {
      const isIt = row && Number(row[1]) === number + 1 && fields.shares.startsWith(text.dataset.kind);
      text.setAttribute("aria-invalid", Boolean(isIt));
    }
  });
}
