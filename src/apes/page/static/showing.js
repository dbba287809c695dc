// Showing an answer, part by part.

import { band, curve, downwards, figure, short, upwards } from "./charts.js";

const byId = (id) => document.getElementById(id);
// Names of published bounds; others, which somebody added, go by their own.
const BOUNDS = {
  bbgn19_bennett: "BBGN'19, Bennett", bbgn19_hoeffding: "BBGN'19, Hoeffding", eon_closed: "APES paper, closed form",
  eon_numeric: "APES paper, numeric", erlingsson19: "Erlingsson et al. '19", fmt22_closed: "FMT'22, closed form",
  fmt22_numeric: "FMT'22, numeric", gddtk21: "GDDTK'21", user_apes: "APES paper, APES", user_s_apes: "APES paper, S-APES",
};
const LEVELS = [[1, "strong"], [3, "good"], [10, "weak"]];

function cell(text, name = "td") {
  const made = document.createElement(name);
  if (text instanceof Node) made.append(text);
  else made.textContent = text;
  return made;
}

function headlineIs(number) {
  byId("headline").dataset.proved = number;
}

export class Answer {
  constructor() {
    this.number = 0;
    this.target = null;
    this.clear({});
  }

  // Nothing of an older answer is kept but what is shown until its place is taken.
  clear({ rounds, users }) {
    this.total = null;
    this.groups = [];
    this.curves = { rounds: [], users: [] };
    this.own = { rounds, users };
    this.published = null;
  }

  show(part) {
    this.number = part.number;
    if (part.error) this.fail(part);
    else this[`show_${part.part}`]?.(part);
  }

  // A figure that there is none of: said where it would stand.
  fail(part) {
    if (part.part !== "about" && part.part !== "total") return;
    byId("epsilon").textContent = "–";
    byId("lower").textContent = "";
    byId("meaning").textContent = part.error;
    byId("meaning").dataset.level = "nobody";
    byId("band").replaceChildren();
  }

  // At once: what is no claim yet.
  show_about(part) {
    this.outline = part;
    byId("epsilon").textContent = `≈ ${figure(part.about)}`;
    delete byId("epsilon").dataset.exact;
    byId("epsilon").classList.add("about");
    byId("lower").textContent = "estimate";
    byId("meaning").textContent = "Being proved …";
    byId("meaning").dataset.level = "";
    byId("noise").textContent = figure(part.noise);
    byId("trusted").replaceChildren(...part.trusted.flatMap(({ about, is }) => [cell(about, "dt"), cell(is, "dd")]));
    this.show_accuracy(part.accuracy);
    byId("band").replaceChildren(band({ epsilon: part.about, lower: 0, proved: false }));
    // Rows without figures yet: the table keeps its height while somebody drags.
    this.groups = part.budgets.map((group) => ({ ...group }));
    this.drawGroups();
  }

  show_total(part) {
    this.total = { ...this.outline, ...part };
    byId("epsilon").textContent = upwards(part.epsilon);
    byId("epsilon").dataset.exact = part.epsilon;
    byId("epsilon").classList.remove("about");
    byId("lower").textContent = "certified";
    byId("meaning").textContent = part.meaning[0].toUpperCase() + part.meaning.slice(1);
    const level = part.meaning.includes("nobody") ? "nobody" : (LEVELS.find(([most]) => part.epsilon <= most) ?? [0, "nobody"])[1];
    byId("meaning").dataset.level = level;
    byId("sentence").textContent = part.sentence;
    byId("band").replaceChildren(band({ epsilon: part.epsilon, lower: 0 }));
    headlineIs(part.number);
  }

  show_accuracy({ expected, why, is }) {
    byId("accuracy").textContent = expected === null ? "–" : `${(100 * expected).toFixed(1)} %`;
    byId("accuracy-note").textContent = expected === null ? why : "on public digits";
    byId("accuracy-basis").textContent = is;
  }

  show_lower(part) {
    const lower = part.lower ?? 0;
    byId("lower").textContent = lower > 0 ? `certified, cannot be below ${downwards(lower)}` : "certified";
    byId("band").replaceChildren(band({ epsilon: this.total.epsilon, lower }));
    this.total.lower = lower;
  }

  show_group(part) {
    this.groups[part.number_of_group] = part;
    this.drawGroups();
  }

  drawGroups() {
    const rows = this.groups.map((group) => {
      const made = document.createElement("tr");
      const range = group.smallest !== undefined && group.smallest < group.budget;
      const name = range ? `${short(group.smallest)} to ${short(group.budget)}` : short(group.budget);
      const wide = cell(group.meaning ? band(group, { tiny: true }) : "");
      wide.className = "wide";
      const heading = cell(name, "th");
      heading.scope = "row";
      made.append(heading, cell(group.users.toLocaleString("en")),
        cell(group.meaning ? upwards(group.epsilon) : "…"), cell(group.meaning ? (group.lower > 0 ? downwards(group.lower) : "–") : "…"), wide);
      return made;
    });
    byId("groups").tBodies[0].replaceChildren(...rows);
  }

  show_curve(part) {
    const points = this.curves[part.along];
    points.push({ place: part.place, epsilon: part.epsilon });
    this.drawCurve(part.along);
  }

  drawCurve(along) {
    const what = along === "users" ? "people" : "rounds";
    byId(`${along}-chart`).replaceChildren(curve(this.curves[along], { own: this.own[along], target: this.target, what }));
  }

  show_published(part) {
    this.published = part.published;
    byId("published-delta").textContent = `at delta ${part.delta_s}`;
    const fill = (id, names) => {
      const rows = names.map((name) => {
        const made = document.createElement("tr"), value = part.published[name];
        const heading = cell(BOUNDS[name] ?? name, "th");
        heading.scope = "row";
        made.append(heading, cell(value === null ? "outside its range" : figure(value)));
        return made;
      });
      byId(id).tBodies[0].replaceChildren(...rows);
    };
    const names = Object.keys(part.published);
    fill("per-coordinate", names.filter((name) => !name.startsWith("user_")));
    fill("per-user", names.filter((name) => name.startsWith("user_")));
  }

  // The whole answer as plain values.
  json(setting) {
    const { epsilon, delta, meaning, lower, noise, accuracy } = this.total;
    const groups = this.groups.map(({ budget, smallest, users, epsilon: own, lower: low }) => ({ budget, smallest, users, epsilon: own, lower: low }));
    const figures = { epsilon, lower: lower ?? null, delta, meaning, noise, accuracy: accuracy.expected, groups };
    return JSON.stringify({ setting, answer: { ...figures, curves: this.curves, published_not_proved: this.published } }, null, 1);
  }

  // One sentence for who listens.
  get spoken() {
    if (!this.total) return "";
    const lower = this.total.lower > 0 ? `, cannot be below ${downwards(this.total.lower)}` : "";
    return `Epsilon ${upwards(this.total.epsilon)}${lower}: ${this.total.meaning}`;
  }
}
