// A plot in SVG: hover names the nearest point, a click opens its record, a dragged box zooms; all of it by keyboard too.
//
// spec: {label, x: {label, log, beside}, y: {label, log, beside}, series: [...], bands: [{low, high}], rules: [{at, kind}], lanes, fewest}
// series: {name, look, mark: "dots" | "line", x: [], y: [], shift: [], low: [], high: [], links: [hash or null], faint, mean, guide, text}
// Series of one name share the entry of the legend. Means are joined by a line; a guide is a line that is no run's. Bands and
// rules stand on the x axis. `beside`: all numbers on that axis in the plots that share it.

const LOOKS = 7;
const REACH = 40;

/** Where along x a point is drawn. */
function drawnAt(series, at) { return series.x[at] + (series.shift?.[at] ?? 0); }

class Plot {
  constructor(spec) {
    this.spec = spec;
    this.names = [...new Set(spec.series.map((series) => series.name))];
    this.hidden = new Set();
    this.selected = null;
    this.points = [];
    this.home = this.whole();
    this.view = { ...this.home };
    this.tip = element("div", { class: "tip", hidden: true });
    this.voice = element("p", { class: "unseen", "aria-live": "polite" });
    this.svg = shape("svg", {
      tabindex: 0, role: "application", "aria-roledescription": "plot",
      "aria-label": `${spec.label}. Arrow keys walk over the points, Enter opens the record, plus and minus zoom, 0 resets.`,
      onkeydown: (event) => this.key(event),
      onpointerdown: (event) => this.press(event),
      onpointermove: (event) => this.move(event),
      onpointerup: (event) => this.release(event),
      onpointercancel: () => this.drop(),
      onpointerleave: () => { if (!this.from) this.select(null); },
      onblur: () => this.select(null),
    });
    this.canvas = element("div", { class: "canvas" }, this.svg, this.tip);
    this.node = element("div", { class: "plot" }, this.bar(), this.canvas, this.voice);
    // drawing sets the height, which is no reason to draw again and lose the selected point
    new ResizeObserver(() => { if (this.canvas.clientWidth !== this.width) this.draw(); }).observe(this.canvas);
  }

  /** The names with their looks, as switches, and the buttons that zoom. */
  bar() {
    const legend = this.names.map((name) => {
      // of several courses of one name the strong one stands in the legend
      const series = this.spec.series.find((one) => one.name === name && !one.faint) ?? this.spec.series.find((one) => one.name === name);
      const d = series.mark === "line" ? "M1,7H23" : markPath(this.look(series), 12, 7, series.faint ? 2.5 : 4);
      const sample = shape("path", { d, class: this.classes(series) });
      const through = series.mean ? shape("path", { d: "M1,7H23", class: `line look${this.look(series)}` }) : null;
      const icon = shape("svg", { width: 24, height: 14, "aria-hidden": "true" }, through, sample);
      return element("button", { type: "button", "aria-pressed": "true", onclick: (event) => this.toggle(name, event.currentTarget) }, icon, name);
    });
    const tool = (text, label, action) => element("button", { type: "button", title: label, "aria-label": `${label}: ${this.spec.label}`, onclick: action }, text);
    const tools = [tool("+", "zoom in", () => this.zoom(0.5)), tool("−", "zoom out", () => this.zoom(2)), tool("reset", "reset zoom", () => this.reset())];
    return element("div", { class: "plot-bar" }, element("div", { class: "legend" }, legend), element("div", { class: "tools" }, tools));
  }

  look(series) { return (series.look ?? this.names.indexOf(series.name)) % LOOKS; }

  classes(series) {
    if (series.guide) return `line guide ${series.guide}${series.x.length === 2 ? " span" : ""}`;
    return `${series.mark} look${this.look(series)}${series.faint ? " faint" : ""}${series.mean ? " mean" : ""}`;
  }

  toggle(name, button) {
    if (!this.hidden.delete(name)) this.hidden.add(name);
    button.setAttribute("aria-pressed", String(!this.hidden.has(name)));
    this.draw();
  }

  /** The view that holds everything. */
  whole() {
    const { series, bands = [], rules = [], x, y } = this.spec;
    const xs = (x.beside ?? series).flatMap((one) => one.x.map((value, at) => placed(drawnAt(one, at), x.log)));
    for (const band of bands) xs.push(placed(band.low, x.log), placed(band.high, x.log));
    for (const rule of rules) xs.push(placed(rule.at, x.log));
    const ys = (y.beside ?? series).flatMap((one) => [...one.y, ...(one.low ?? []), ...(one.high ?? [])].map((value) => placed(value, y.log)));
    return { x: extent(xs), y: extent(ys, 0.07) };
  }

  draw() {
    const width = this.canvas.clientWidth;
    if (!width) return;
    this.width = width;
    const height = this.spec.height ?? (width < 480 ? 240 : 300);
    const box = { left: 58, right: 10, top: 8, bottom: 44 };
    this.area = { x: box.left, y: box.top, width: width - box.left - box.right, height: height - box.top - box.bottom };
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.setAttribute("height", height);
    this.points = [];
    this.inner = shape("svg", { ...this.area, overflow: "hidden" });
    this.drawBands();
    this.drawLanes();
    const seen = this.spec.series.filter((series) => !this.hidden.has(series.name));
    for (const series of [...seen.filter((one) => one.faint), ...seen.filter((one) => !one.faint)]) this.drawSeries(series);
    this.points.sort((a, b) => a.px - b.px || a.py - b.py);
    this.ring = shape("path", { class: "ring" });
    this.rubber = shape("rect", { class: "rubber", visibility: "hidden" });
    this.inner.append(this.ring, this.rubber);
    this.svg.replaceChildren(...this.frame(width, height), this.inner);
    this.select(null);
  }

  px(place) { return ((place - this.view.x[0]) / (this.view.x[1] - this.view.x[0])) * this.area.width; }
  py(place) { return (1 - (place - this.view.y[0]) / (this.view.y[1] - this.view.y[0])) * this.area.height; }

  frame(width, height) {
    const { x, y, width: w, height: h } = this.area;
    const made = [];
    for (const [at, text] of ticks(this.view.x, this.spec.x.log, w / 75)) {
      const place = x + this.px(at);
      made.push(shape("path", { class: "grid", d: `M${place},${y}v${h}` }), shape("text", { x: place, y: y + h + 16, "text-anchor": "middle" }, text));
    }
    for (const [at, text] of ticks(this.view.y, this.spec.y.log, h / 42)) {
      const place = y + this.py(at);
      made.push(shape("path", { class: "grid", d: `M${x},${place}h${w}` }), shape("text", { x: x - 6, y: place + 4, "text-anchor": "end" }, text));
    }
    made.push(
      shape("path", { class: "axis", d: `M${x},${y}v${h}h${w}` }),
      shape("text", { class: "label", x: x + w / 2, y: height - 8, "text-anchor": "middle" }, this.spec.x.label),
      shape("text", { class: "label", x: -(y + h / 2), y: 13, "text-anchor": "middle", transform: "rotate(-90)" }, this.spec.y.label),
    );
    return made;
  }

  drawBands() {
    const { bands = [], rules = [], x } = this.spec;
    for (const band of bands) {
      const [low, high] = [this.px(placed(band.low, x.log)), this.px(placed(band.high, x.log))];
      this.inner.append(shape("rect", { class: "band", x: low, y: 0, width: Math.max(high - low, 2), height: this.area.height }));
    }
    for (const rule of rules) {
      const at = this.px(placed(rule.at, x.log));
      this.inner.append(shape("path", { class: `rule ${rule.kind ?? ""}`, d: `M${at},0v${this.area.height}` }));
    }
  }

  /** Faint lines between neighbouring counts. */
  drawLanes() {
    if (!this.spec.lanes) return;
    for (let at = Math.ceil(this.view.x[0]) - 0.5; at < this.view.x[1]; at += 1) {
      this.inner.append(shape("path", { class: "grid lane", d: `M${this.px(at)},0v${this.area.height}` }));
    }
  }

  drawSeries(series) {
    const look = this.look(series);
    const { x, y } = this.spec;
    const r = series.mean ? 4.5 : series.faint || series.x.length > 300 ? 2.2 : 3.4;
    let path = "", stems = "", through = "", pen = "M";
    const texts = [];
    series.x.forEach((_, at) => {
      const px = this.px(placed(drawnAt(series, at), x.log)), py = this.py(placed(series.y[at], y.log));
      if (!Number.isFinite(px) || !Number.isFinite(py)) { pen = "M"; return; }
      if (px >= -1 && px <= this.area.width + 1 && py >= -1 && py <= this.area.height + 1) this.points.push({ series, at, px, py });
      if (series.mark === "line" || series.mean) { through += `${pen}${px.toFixed(1)},${py.toFixed(1)}`; pen = "L"; }
      if (series.mark !== "line") path += markPath(look, Number(px.toFixed(1)), Number(py.toFixed(1)), r);
      if (series.low && series.low[at] !== null) {
        stems += `M${px.toFixed(1)},${this.py(placed(series.low[at], y.log)).toFixed(1)}V${this.py(placed(series.high[at], y.log)).toFixed(1)}`;
      }
      if (series.mean && !series.faint && series.runs[at].length <= (this.spec.fewest ?? 0)) {
        const top = this.py(placed(series.high?.[at] ?? series.y[at], y.log));
        texts.push(shape("text", { x: px, y: top - 6, "text-anchor": "middle" }, String(series.runs[at].length)));
      }
    });
    if (series.text) {
      const [from, to] = [0, series.x.length - 1].map((at) => this.px(placed(series.x[at], x.log)));
      texts.push(shape("text", { x: (from + to) / 2, y: this.py(placed(series.y[0], y.log)) - 7, "text-anchor": "middle" }, series.text));
    }
    if (series.mark === "line") path = through;
    else if (series.mean) this.inner.append(shape("path", { class: `line look${look}`, d: through }));
    if (stems) this.inner.append(shape("path", { class: `stem look${look}`, d: stems }));
    if (path) this.inner.append(shape("path", { class: this.classes(series), d: path }));
    this.inner.append(...texts);
  }

  nearest(event) {
    const box = this.svg.getBoundingClientRect();
    const x = event.clientX - box.left - this.area.x, y = event.clientY - box.top - this.area.y;
    let best = null, reach = REACH ** 2;
    for (const point of this.points) {
      const away = (point.px - x) ** 2 + (point.py - y) ** 2;
      if (away < reach) [best, reach] = [point, away];
    }
    return best;
  }

  select(point) {
    this.selected = point;
    this.tip.hidden = !point;
    this.ring.setAttribute("d", point ? markPath(0, point.px, point.py, 6) : "");
    if (!point) return;
    this.tip.replaceChildren(...this.words(point).map((line) => element("div", {}, line)));
    const right = this.area.x + point.px > this.canvas.clientWidth / 2;
    this.tip.style.left = right ? "auto" : `${this.area.x + point.px + 12}px`;
    this.tip.style.right = right ? `${this.canvas.clientWidth - this.area.x - point.px + 12}px` : "auto";
    this.tip.style.top = `${Math.max(0, this.area.y + point.py - 20)}px`;
  }

  words({ series, at }) {
    const span = series.low && series.low[at] !== null ? ` (${digits(series.low[at])} to ${digits(series.high[at])})` : "";
    const name = linkName(series.links?.[at]);
    return [series.name, `${this.spec.x.label} ${digits(series.x[at])}`, `${this.spec.y.label} ${digits(series.y[at])}${span}`, ...(name ? [name] : [])];
  }

  follow(point) {
    const link = point?.series.links?.[point.at];
    if (link) location.hash = link;
  }

  key(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (step && this.points.length) {
      const other = event.key === "ArrowUp" || event.key === "ArrowDown";
      const pool = other || !this.selected ? this.points : this.points.filter((point) => point.series.name === this.selected.series.name);
      const from = this.selected ? pool.indexOf(this.selected) : step > 0 ? -1 : 0;
      this.select(pool[(from + step + pool.length) % pool.length]);
      this.voice.textContent = this.words(this.selected).join(", ");
    } else if (event.key === "Enter") this.follow(this.selected);
    else if (event.key === "+" || event.key === "=") this.zoom(0.5);
    else if (event.key === "-") this.zoom(2);
    else if (event.key === "0") this.reset();
    else return;
    event.preventDefault();
  }

  /** Narrow or widen the view about the selected point, or its middle, but never beyond everything. */
  zoom(factor) {
    const point = this.selected;
    const centre = {
      x: point ? placed(point.series.x[point.at], this.spec.x.log) : (this.view.x[0] + this.view.x[1]) / 2,
      y: point ? placed(point.series.y[point.at], this.spec.y.log) : (this.view.y[0] + this.view.y[1]) / 2,
    };
    for (const axis of ["x", "y"]) {
      const half = ((this.view[axis][1] - this.view[axis][0]) * factor) / 2;
      this.view[axis] = [Math.max(this.home[axis][0], centre[axis] - half), Math.min(this.home[axis][1], centre[axis] + half)];
    }
    this.draw();
  }

  reset() {
    this.view = { ...this.home };
    this.draw();
  }

  place(event) {
    const box = this.svg.getBoundingClientRect();
    return {
      x: Math.min(Math.max(event.clientX - box.left - this.area.x, 0), this.area.width),
      y: Math.min(Math.max(event.clientY - box.top - this.area.y, 0), this.area.height),
    };
  }

  press(event) {
    if (event.button !== 0) return;
    this.before = this.selected;
    if (event.pointerType !== "touch") {
      this.from = this.place(event);
      this.svg.setPointerCapture(event.pointerId);
    }
  }

  move(event) {
    const to = this.from && this.place(event);
    if (to && Math.hypot(to.x - this.from.x, to.y - this.from.y) > 6) {
      this.select(null);
      this.corner = to;
      const rect = { x: Math.min(to.x, this.from.x), y: Math.min(to.y, this.from.y), width: Math.abs(to.x - this.from.x), height: Math.abs(to.y - this.from.y) };
      for (const [name, value] of Object.entries({ ...rect, visibility: "visible" })) this.rubber.setAttribute(name, value);
    } else if (!this.corner) this.select(this.nearest(event));
  }

  release(event) {
    const { from, corner } = this;
    this.drop();
    if (!corner) {
      const point = this.nearest(event);
      const again = point && this.before && point.series === this.before.series && point.at === this.before.at;
      // a finger cannot hover: its first touch shows the point, the second opens the record
      if (event.pointerType !== "touch" || again) this.follow(point);
      else this.select(point);
      return;
    }
    const inX = (pixel) => this.view.x[0] + (pixel / this.area.width) * (this.view.x[1] - this.view.x[0]);
    const inY = (pixel) => this.view.y[1] - (pixel / this.area.height) * (this.view.y[1] - this.view.y[0]);
    if (Math.abs(corner.x - from.x) < 6 || Math.abs(corner.y - from.y) < 6) return;
    this.view = {
      x: [inX(Math.min(from.x, corner.x)), inX(Math.max(from.x, corner.x))],
      y: [inY(Math.max(from.y, corner.y)), inY(Math.min(from.y, corner.y))],
    };
    this.draw();
  }

  drop() {
    this.from = this.corner = null;
    this.rubber?.setAttribute("visibility", "hidden");
  }
}
