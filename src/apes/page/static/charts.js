// Pictures, drawn as SVG: the band of epsilon, its curves, the histogram of budgets. They know nothing of questions.

const SPACE = "http://www.w3.org/2000/svg";

export function figure(value) {
  // Three digits, without powers of ten where people would not write them.
  if (value === null || value === undefined) return "no bound";
  if (value === 0) return "0";
  if (Math.abs(value) >= 1e6 || Math.abs(value) < 1e-3) return value.toExponential(2).replace("e+", "e").replace(/\.?0+e/, "e");
  const text = value.toPrecision(3);
  const plain = text.includes("e") ? String(Math.round(value)) : text;
  return Number(plain) >= 1000 ? Math.round(value).toLocaleString("en") : plain;
}

// Away from what would be claimed too much: what is certified is shown no smaller, what is forced no larger.
function rounded(value, sign) {
  if (value === null || value === undefined) return value;
  if (value >= 1000 && value < 1e6) return sign > 0 ? Math.ceil(value) : Math.floor(value);
  const near = Number(value.toPrecision(3));
  if (sign * (value - near) <= 0) return near;
  return Number((near + sign * 10 ** (Math.floor(Math.log10(value)) - 2)).toPrecision(3));
}

export function upwards(value) {
  return figure(rounded(value, 1));
}

export function downwards(value) {
  return figure(rounded(value, -1));
}

export function element(name, attributes = {}, ...children) {
  const made = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function drawing(width, height, label) {
  const shown = label === null ? { "aria-hidden": "true" } : { role: "img", "aria-label": label };
  return element("svg", { viewBox: `0 0 ${width} ${height}`, ...shown });
}

// What an epsilon comes to, up to each end, as the accountant's words have it.
const ZONES = [["strong", 1], ["good", 3], ["weak", 10], ["nobody", Infinity]];
const LOWEST = 0.02, HIGHEST = 100;

function along(value, width) {
  const share = Math.log(Math.min(Math.max(value, LOWEST), HIGHEST) / LOWEST) / Math.log(HIGHEST / LOWEST);
  return share * width;
}

// The band between what is forced and what is certified; tiny for rows of a table.
export function band({ epsilon, lower, proved = true }, { tiny = false } = {}) {
  // On a phone letters would become too small to read.
  const isNarrow = innerWidth < 600, width = tiny ? 160 : isNarrow ? 290 : 560, bar = tiny ? 10 : 16, top = tiny ? 3 : 4;
  const words = !proved ? `about ${figure(epsilon)}, not proved yet` : epsilon === null ? "nothing is certified" : `certified ${upwards(epsilon)}`;
  const forced = lower ? `, cannot be below ${downwards(lower)}` : "";
  const svg = drawing(width, tiny ? 16 : 42, tiny ? null : `Epsilon: ${words}${forced}`);
  let left = 0;
  for (const [name, most] of ZONES) {
    const right = along(most, width);
    svg.append(element("rect", { x: left, y: top, width: right - left, height: bar, class: `zone-${name}` }));
    if (!tiny) {
      const said = name !== "nobody" ? name : isNarrow ? "nobody" : "protects nobody";
      const isRoom = !isNarrow || right - left > 60;
      if (isRoom) svg.append(element("text", { x: (left + right) / 2, y: 38, "text-anchor": "middle" }, said));
      if (most < Infinity) svg.append(element("text", { x: right, y: 38, "text-anchor": "middle" }, String(most)));
    }
    left = right;
  }
  const high = along(epsilon === null ? HIGHEST : epsilon, width), low = along(lower || LOWEST, width);
  const from = lower ? Math.min(low, high) : high;
  svg.append(element("rect", { x: from, y: top + bar / 4, width: Math.max(high - from, 0), height: bar / 2, class: "between" }));
  svg.append(element("rect", { x: high - 2, y: top - 3, width: 4, height: bar + 6, rx: 2, class: proved ? "needle" : "needle about" }));
  return svg;
}

// As few digits as it can be written with, four at most.
export function short(value) {
  return value === null ? "no bound" : Math.abs(value) >= 1e-3 ? String(Number(value.toPrecision(4))) : figure(value);
}

function thousands(value) {
  for (const [size, letter] of [[1e6, "M"], [1e3, "k"]]) if (value >= size) return `${value / size}${letter}`;
  return String(value);
}

// Epsilon along rounds or people, both on logarithmic scales.
export function curve(points, { own, target, what }) {
  const width = 330, height = 210, left = 38, bottom = 186, right = 322, top = 10;
  const known = points.filter((point) => point.epsilon !== null).sort((a, b) => a.place - b.place);
  const told = known.map((point) => `${point.place.toLocaleString("en")} ${what}: ${upwards(point.epsilon)}`).join("; ");
  const svg = drawing(width, height, `Certified epsilon, from ${known.length} points. ${told}`);
  if (known.length < 2) return svg;
  const values = [...known.map((point) => point.epsilon), ...(target ? [target] : [])];
  const low = 10 ** Math.floor(Math.log10(Math.max(Math.min(...values), 1e-6)) + 1e-9);
  const high = 10 ** Math.ceil(Math.log10(Math.max(...values, low * 10)) - 1e-9);
  const first = known[0].place, last = known[known.length - 1].place;
  const x = (place) => left + (right - left) * Math.log(place / first) / Math.log(last / first);
  const y = (value) => bottom - (bottom - top) * Math.log(Math.max(value, low) / low) / Math.log(high / low);
  for (let tick = low; tick <= high * 1.01; tick *= 10) {
    svg.append(element("path", { d: `M${left} ${y(tick)}H${right}`, class: "axis" }));
    svg.append(element("text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, short(Number(tick.toPrecision(1)))));
  }
  for (let tick = 10 ** Math.ceil(Math.log10(first) - 1e-9); tick <= last * 1.001; tick *= 10) {
    const anchor = x(tick) > right - 12 ? "end" : "middle";
    svg.append(element("text", { x: x(tick), y: bottom + 18, "text-anchor": anchor }, thousands(Math.round(tick))));
  }
  if (target && target >= low && target <= high) {
    svg.append(element("path", { d: `M${left} ${y(target)}H${right}`, class: "target" }));
    // Where the curve is not.
    const falls = known[0].epsilon > known[known.length - 1].epsilon;
    const place = falls ? { x: right, "text-anchor": "end" } : { x: left + 4 };
    svg.append(element("text", { ...place, y: y(target) - 5 }, `target ${short(target)}`));
  }
  svg.append(element("path", { d: "M" + known.map((point) => `${x(point.place)} ${y(point.epsilon)}`).join("L"), class: "curve" }));
  for (const point of known) {
    const mine = point.place === own;
    svg.append(element("circle", { cx: x(point.place), cy: y(point.epsilon), r: mine ? 5 : 2.5, class: mine ? "dot own" : "dot" }));
  }
  return svg;
}

// Bars that can be dragged: `drag(number, share)` is told the share in [0, 1] that a bar was pulled to.
export function histogram(bars, drag) {
  const width = 340, height = 150, bottom = 124, top = 10, gap = bars.length > 12 ? 2 : 10;
  const svg = drawing(width, height, drag ? null : `Budgets: ${bars.map((bar) => `${bar.label} ${Math.round(100 * bar.share)} %`).join(", ")}`);
  const most = drag ? 1 : Math.max(...bars.map((bar) => bar.share), 1e-9);
  const step = width / Math.max(bars.length, 1);
  svg.append(element("path", { d: `M0 ${bottom}H${width}`, class: "axis" }));
  bars.forEach((bar, number) => {
    const size = (bottom - top) * bar.share / most, x = number * step + gap / 2, wide = Math.max(step - gap, 1);
    svg.append(element("rect", { x, y: bottom - size, width: wide, height: size, rx: 3, class: drag ? "bar grip" : "bar" }));
    if (drag) {
      svg.append(element("rect", { x: x + wide / 2 - 14, y: bottom - size - 3, width: 28, height: 6, rx: 3, class: "handle" }));
      const area = element("rect", { x: number * step, y: 0, width: step, height: bottom, class: "grip-area", "data-bar": number });
      area.addEventListener("pointerdown", (event) => {
        event.preventDefault();
        // The picture is drawn anew while it is dragged; its place is the same.
        const frame = svg.getBoundingClientRect();
        const follow = (moved) => {
          const place = (moved.clientY - frame.top) / frame.height * height;
          drag(number, Math.min(Math.max((bottom - place) / (bottom - top), 0), 1));
        };
        const end = () => {
          removeEventListener("pointermove", follow);
          removeEventListener("pointerup", end);
          removeEventListener("pointercancel", end);
        };
        addEventListener("pointermove", follow);
        addEventListener("pointerup", end);
        addEventListener("pointercancel", end);
        follow(event);
      });
      svg.append(area);
    }
    if (bars.length <= 12 || number % 6 === 0) {
      svg.append(element("text", { x: x + wide / 2, y: bottom + 18, "text-anchor": "middle" }, bar.label));
    }
  });
  return svg;
}
