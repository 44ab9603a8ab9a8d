// Line charts. The library draws on a canvas, so its colours are read from the style sheet.

import { h } from "./dom.js";
import { axis, clock } from "./format.js";

export const colours = ["#14746f", "#c4572e", "#4c5fd5", "#a8841a", "#8a3ab9", "#2f8f3a", "#c02a5b", "#4b7a99", "#7a5230", "#777777"];
const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** A chart of lines over one axis.
 *
 * across, up: what the axes are; lines: [{label, show(value), isHeld}], isHeld: whether a value stays until the next one; clock: whether the axis is seconds since 1970; `draw([xs, ys, ...])` with null for gaps.
 */
export class Chart {
  constructor(lines, { height = 200, clock = true, label = "chart", across = "", up = "" } = {}) {
    Object.assign(this, { lines, height, clock, across, up, data: [[], ...lines.map(() => [])], made: null });
    this.element = h("div", { class: "chart", role: "img", "aria-label": label });
    new ResizeObserver(() => this.resize()).observe(this.element);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.again());
  }

  draw(data) {
    this.data = data;
    if (this.made) this.made.setData(data);
    else this.resize();
  }

  again() {
    this.made?.destroy();
    this.made = null;
    this.resize();
  }

  resize() {
    const width = Math.floor(this.element.clientWidth);
    if (!width || !this.element.isConnected) return;
    if (this.made) {
      if (this.made.width !== width) this.made.setSize({ width, height: this.height });
      return;
    }
    const instants = (plot, marks, number, space, step) => marks.map((one, i) => {
      const [day, time] = clock(one, step < 1 ? 3 : 0).replace("Z", "").split("T");
      if (step >= 86400 || time === undefined) return day;
      const isOther = i === 0 || clock(marks[i - 1]).split("T")[0] !== day;
      return (step >= 60 ? time.slice(0, 5) : time) + (isOther ? `\n${day}` : "");
    });
    const common = { labelFont: "12px system-ui", labelSize: 18, stroke: variable("--pale"), grid: { stroke: variable("--line"), width: 1 }, ticks: { stroke: variable("--line") } };
    this.made = new window.uPlot({
      width, height: this.height, scales: { x: { time: this.clock, range: (plot, from, to) => span(from, to, plot.data[0], this.clock ? 30 : 1) } },
      tzDate: (at) => window.uPlot.tzDate(new Date(at * 1000), "Etc/UTC"), cursor: { drag: { x: true, y: false } },
      axes: [{ ...common, ...(this.clock ? { space: 90, values: instants } : {}), ...(this.across ? { label: this.across } : {}) },
        { ...common, size: 64, values: (plot, marks, number, space, step) => axis(marks, step), ...(this.up ? { label: this.up } : {}) }],
      series: [this.clock ? { label: "time", value: (plot, at) => (at === null || at === undefined ? "–" : clock(at, 3)) } : { label: "instant" }, ...this.lines.map((line, i) => ({
        label: line.label, stroke: colours[i % colours.length], width: 2, spanGaps: false, paths: line.isHeld ? window.uPlot.paths.stepped({ align: 1 }) : undefined,
        value: (plot, value) => (value === null || value === undefined ? "–" : (line.show ?? String)(value)),
      }))],
    }, this.data, this.element);
  }
}

// One instant alone would get an axis of days or years.
function span(from, to, instants, least) {
  if (instants.length === 1) return [instants[0] - least, instants[0] + least];
  if (from === null || to === null) return [Date.now() / 1000 - 60, Date.now() / 1000];
  return from === to ? [from - least, to + least] : [from, to];
}

/** Return bars: [{label, href, value, text}], the longest first. */
export function bars(items, most = 10) {
  const shown = items.filter((one) => Number(one.value) > 0).sort((a, b) => Number(b.value) - Number(a.value)).slice(0, most);
  if (!shown.length) return h("p", { class: "quiet" }, "nothing yet");
  const largest = Number(shown[0].value);
  return h("div", { class: "bars" }, shown.map((one) => [
    one.href ? h("a", { href: one.href, title: one.label }, one.label) : h("span", { title: one.label }, one.label),
    h("meter", { min: "0", max: String(largest), value: String(Number(one.value)), "aria-label": one.label }),
    h("span", {}, one.text),
  ]));
}
